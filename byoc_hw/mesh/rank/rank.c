/* A rank: some PEs of a mesh in one process, a thread each, over rings in a file that ranks share.
 *
 *   rank MEMORY BYTES VIEWS
 *
 * MEMORY is the file, which starts with the views of all VIEWS PEs of the mesh. The standard input has for each PE of
 * the rank a line with the offset of its view, its frames and its library, then a line for each of its ports:
 *
 *   pe VIEW FRAMES LIBRARY
 *   port SENDING PORT OFFSET
 *
 * After a line "load" it says "ready" once all libraries are loaded, and after "go" it runs. Exits with 0 if all PEs
 * have done their frames or were asked to stop; with 1 if one failed, which says "failed PE RESULT ERROR PORT FRAME";
 * with 3 for wrong arguments. */
#define _POSIX_C_SOURCE 200809L
#include "link_pe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FAILED = 1, USAGE = 3, PES = 256, SLICE = 20000000 };

typedef struct {
  bool (*attach)(bool, uint16_t, link_ring_t *);
  void (*start)(link_view_t *);
  int32_t (*run)(uint64_t, uint64_t, bool *);
  void (*failure)(link_failure_t *);
  link_view_t *view;
  uint64_t frames;
  pthread_t thread;
  int32_t result;
} pe_t;

static pe_t pes[PES];
static uint32_t count;
static link_view_t *views; /* of all PEs of the mesh, from the start of the memory */
static uint64_t view_count;

static void *function_of(void *library, const char *name)
{
  void *found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(USAGE);
  }
  return found;
}

static void load(const char *path, link_view_t *view, uint64_t frames)
{
  if (count == PES) {
    fprintf(stderr, "a rank has at most %d PEs\n", PES);
    exit(USAGE);
  }
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(USAGE);
  }
  pe_t *pe = &pes[count++];
  *(void **)&pe->attach = function_of(library, "link_attach");
  *(void **)&pe->start = function_of(library, "link_start");
  *(void **)&pe->run = function_of(library, "link_run");
  *(void **)&pe->failure = function_of(library, "link_failure");
  pe->view = view;
  pe->frames = frames;
  pe->start(view);
}

static void *run(void *argument)
{
  pe_t *pe = argument;
  bool progress;
  do {
    pe->result = pe->run(pe->frames, SLICE, &progress);
  } while (pe->result == 0);
  for (uint64_t other = 0; pe->result < 0 && other < view_count; ++other) {
    atomic_store(&views[other].stop, 1);
  }
  return NULL;
}

static int usage(void)
{
  fprintf(stderr, "usage: rank MEMORY BYTES VIEWS \n");
  return USAGE;
}

int main(int argc, char **argv)
{
  if (argc != 4) {
    return usage();
  }
  const int file = open(argv[1], O_RDWR);
  const size_t bytes = (size_t)strtoull(argv[2], NULL, 10);
  uint8_t *memory = file < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    perror(argv[1]);
    return USAGE;
  }
  views = (link_view_t *)(void *)memory;
  view_count = strtoull(argv[3], NULL, 10);

  char line[4352], path[4097];
  unsigned long long view, frames, offset;
  unsigned sending, port;
  bool loaded = false;
  while (!loaded && fgets(line, sizeof line, stdin) != NULL) {
    loaded = strcmp(line, "load\n") == 0;
    if (sscanf(line, "pe %llu %llu %4096[^\n]", &view, &frames, path) == 3) {
      load(path, (link_view_t *)(void *)(memory + view), frames);
    } else if (count != 0 && sscanf(line, "port %u %u %llu", &sending, &port, &offset) == 3) {
      if (!pes[count - 1].attach(sending != 0, (uint16_t)port, (link_ring_t *)(void *)(memory + offset))) {
        fprintf(stderr, "%s: no %s port %u\n", path, sending ? "sending" : "receiving", port);
        return USAGE;
      }
    } else if (!loaded) {
      return usage();
    }
  }
  printf("ready\n");
  (void)fflush(stdout);
  if (!loaded || fgets(line, sizeof line, stdin) == NULL) {
    return 0; /* who started this is gone */
  }
  for (uint32_t index = 0; index < count; ++index) {
    if (pthread_create(&pes[index].thread, NULL, run, &pes[index]) != 0) {
      fprintf(stderr, "no thread for a PE\n");
      return USAGE;
    }
  }
  int code = 0;
  for (uint32_t index = 0; index < count; ++index) {
    (void)pthread_join(pes[index].thread, NULL);
    if (pes[index].result < 0) {
      link_failure_t found;
      pes[index].failure(&found);
      const unsigned long long frame = found.frame;
      printf("failed %u %d %d %u %llu\n", index, found.result, found.error, found.port, frame);
      code = FAILED;
    }
  }
  return code;
}
