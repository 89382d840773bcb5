/* The program's files, with stdio. */
#include "io.h"

#include <stdio.h>

enum { MAX_FILES = 4 };
static FILE *files[MAX_FILES];

int io_open(const char *path, enum io_mode mode)
{
  for (int file = 0; file < MAX_FILES; ++file) {
    if (files[file] == NULL) {
      files[file] = fopen(path, mode == IO_READ ? "rb" : "wb");
      return files[file] == NULL ? -1 : file;
    }
  }
  return -1;
}

size_t io_read(int file, void *data, size_t bytes)
{
  return fread(data, 1, bytes, files[file]);
}

bool io_write(int file, const void *data, size_t bytes)
{
  return fwrite(data, 1, bytes, files[file]) == bytes;
}

bool io_close(int file)
{
  FILE *closing = files[file];
  files[file] = NULL;
  return fclose(closing) == 0;
}

void io_message(const char *text)
{
  fputs(text, stderr);
}
