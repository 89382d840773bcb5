/* The program's files, by semihosting. */
#include "../io.h"
#include "semihost.h"

static size_t length(const char *text)
{
  size_t bytes = 0;
  while (text[bytes] != '\0') {
    ++bytes;
  }
  return bytes;
}

static int open_mode(const char *path, uintptr_t mode)
{
  const uintptr_t arguments[] = {(uintptr_t)path, mode, length(path)};
  return (int)semihost(SEMIHOST_OPEN, arguments);
}

int io_open(const char *path, enum io_mode mode)
{
  enum { READ_BINARY = 1, WRITE_BINARY = 5 };
  return open_mode(path, mode == IO_READ ? READ_BINARY : WRITE_BINARY);
}

size_t io_read(int file, void *data, size_t bytes)
{
  const uintptr_t arguments[] = {(uintptr_t)file, (uintptr_t)data, bytes};
  return bytes - (size_t)semihost(SEMIHOST_READ, arguments);
}

bool io_write(int file, const void *data, size_t bytes)
{
  const uintptr_t arguments[] = {(uintptr_t)file, (uintptr_t)data, bytes};
  return semihost(SEMIHOST_WRITE, arguments) == 0;
}

bool io_close(int file)
{
  const uintptr_t arguments[] = {(uintptr_t)file};
  return semihost(SEMIHOST_CLOSE, arguments) == 0;
}

void io_message(const char *text)
{
  enum { APPEND = 8 }; /* the console's standard error */
  static int console = -1;
  if (console < 0) {
    console = open_mode(":tt", APPEND);
  }
  (void)io_write(console, text, length(text));
}
