/* A compiler that compiles nothing twice: the tests make hundreds of projects, each with HWlib and the simulator.
 *
 * Built with -DCOMPILER="/usr/bin/gcc" -DCACHE="directory"; takes that compiler's place on PATH. It knows commands that
 * end in `-c file.c -o file.o`. Everything else goes straight to the compiler, and so does what makes it say something.
 *
 * The cache has, by the hash of the command, the list of the files that were read, as the compiler's -MD writes it; and
 * by the hash of the command with the contents of those files, the object. Equal contents include equal files, so this
 * is all that a result depends on. It has the object by the hash of the command with what the preprocessor makes of those
 * files as well: accelerators differ in macros, most of which a file of the simulator does not use.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    char *bytes; /* with a 0 behind them; NULL: there is no such file */
    size_t size;
} File;

typedef char Path[4096];

static File read_file(const char *path)
{
    File file = {NULL, 0};
    FILE *stream = fopen(path, "rb");
    if (!stream) {
        return file;
    }
    size_t room = 1 << 16;
    file.bytes = malloc(room);
    for (size_t got; (got = fread(file.bytes + file.size, 1, room - file.size - 1, stream)) > 0;) {
        file.size += got;
        if (file.size == room - 1) {
            file.bytes = realloc(file.bytes, room *= 2);
        }
    }
    file.bytes[file.size] = 0;
    fclose(stream);
    return file;
}

/* Whole or not at all, as other processes do the same. */
static int write_file(const char *path, File file)
{
    Path unfinished;
    snprintf(unfinished, sizeof unfinished, "%s.%d", path, (int)getpid());
    FILE *stream = fopen(unfinished, "wb");
    if (!stream) {
        return 0;
    }
    int written = fwrite(file.bytes, 1, file.size, stream) == file.size;
    return fclose(stream) == 0 && written && rename(unfinished, path) == 0;
}

static int copied(const char *from, const char *to)
{
    File file = read_file(from);
    int written = file.bytes && write_file(to, file);
    free(file.bytes);
    return written;
}

/* FNV-1a, over the bytes and then their number. */
static uint64_t hashed(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;
    for (size_t index = 0; index < size; index++) {
        hash = (hash ^ byte[index]) * UINT64_C(1099511628211);
    }
    for (size_t rest = size + 1; rest; rest >>= 8) {
        hash = (hash ^ (rest & 255)) * UINT64_C(1099511628211);
    }
    return hash;
}

static void in_cache(Path path, uint64_t hash, const char *extension)
{
    snprintf(path, sizeof(Path), "%s/%016llx%s", CACHE, (unsigned long long)hash, extension);
}

/* Where the cache has the object: by the command with the contents of the files that the first rule of the makefile
 * `dependencies` names. 0 if one of them cannot be read. */
static int find_object(Path path, uint64_t command, File dependencies)
{
    char *list = dependencies.bytes ? strdup(dependencies.bytes) : NULL;
    int found = 0;
    strtok(list ? list : "", " \\\n"); /* the target */
    for (char *name; list && (name = strtok(NULL, " \\\n")) && name[strlen(name) - 1] != ':'; found = 1) {
        File file = read_file(name);
        if (!file.bytes) {
            found = 0;
            break;
        }
        command = hashed(hashed(command, name, strlen(name)), file.bytes, file.size);
        free(file.bytes);
    }
    free(list);
    in_cache(path, command, ".o");
    return found;
}

/* What the compiler says. */
static File told(char *arguments[], int *status)
{
    Path said;
    in_cache(said, (uint64_t)getpid(), ".said");
    pid_t child = fork();
    if (child == 0) {
        if (freopen(said, "w", stderr)) {
            execv(COMPILER, arguments);
        }
        _exit(127);
    }
    int ended = 1;
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
    }
    *status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
    File words = read_file(said);
    unlink(said);
    return words;
}

/* Where the cache has the object by what the preprocessor makes of the source. 0 if that fails or says something. */
static int find_preprocessed(Path path, uint64_t command, char *arguments[], int count)
{
    Path text;
    in_cache(text, (uint64_t)getpid(), ".i");
    char *preprocess[count + 1];
    memcpy(preprocess, arguments, (size_t)(count + 1) * sizeof *arguments);
    preprocess[count - 4] = (char[]){"-E"};
    preprocess[count - 1] = text;
    int status = 1;
    int found = told(preprocess, &status).size == 0 && status == 0;
    if (found) {
        File file = read_file(text);
        in_cache(path, hashed(command, file.bytes, file.size), ".o");
    }
    unlink(text);
    return found;
}

static int has(char *arguments[], const char *wanted)
{
    while (*arguments && strcmp(*arguments, wanted) != 0) {
        arguments++;
    }
    return *arguments != NULL;
}

int main(int count, char *arguments[])
{
    char **last = arguments + count - 4; /* -c file.c -o file.o */
    arguments[0] = (char[]){COMPILER};   /* gcc finds its parts beside itself */
    if (count < 5 || strcmp(last[0], "-c") != 0 || strcmp(last[2], "-o") != 0 || strlen(last[3]) >= sizeof(Path) ||
        has(arguments, "-MF")) {
        execv(COMPILER, arguments);
        return 127;
    }
    uint64_t command = hashed(UINT64_C(14695981039346656037), COMPILER, strlen(COMPILER));
    for (int index = 1; index < count; index++) {
        command = hashed(command, arguments[index], strlen(arguments[index]));
    }
    Path rule, kept_rule, by_files, by_text;
    in_cache(rule, (uint64_t)getpid(), ".rule");
    in_cache(kept_rule, command, ".d");

    int asked = has(arguments, "-MD"); /* for the rule, beside the object */
    char *object = last[3];
    if (asked) {
        strcpy(rule, object);
        strcpy(strrchr(rule, '.') ? strrchr(rule, '.') : rule, ".d");
    }
    File dependencies = read_file(kept_rule);
    if (find_object(by_files, command, dependencies) && copied(by_files, object) &&
        (!asked || write_file(rule, dependencies))) {
        return 0;
    }
    char *with_rule[count + 6];
    memcpy(with_rule, arguments, (size_t)(count - 4) * sizeof *arguments);
    memcpy(with_rule + count - 4, (char *[]){"-MD", "-MF", rule, "-MQ", object}, 5 * sizeof *arguments);
    memcpy(with_rule + count + 1, last, 5 * sizeof *arguments);

    int status = 0;
    int preprocessed = find_preprocessed(by_text, command, with_rule, count + 5);
    int kept = preprocessed && copied(by_text, object);
    if (!kept) {
        File words = told(with_rule, &status);
        fwrite(words.bytes, 1, words.size, stderr);
        kept = status == 0 && words.size == 0 && (!preprocessed || copied(object, by_text));
    }
    if (kept) {
        dependencies = read_file(rule);
        if (find_object(by_files, command, dependencies) && copied(object, by_files)) {
            write_file(kept_rule, dependencies);
        }
    }
    if (!asked) {
        unlink(rule);
    }
    return status;
}
