/* The files and messages of app/main.c: io.c does them with stdio. A target without files has a version
 * of its own (semihosting, a serial line): make APP_IO=my_io.c */
#ifndef APP_IO_H
#define APP_IO_H

#include <stdbool.h>
#include <stddef.h>

enum io_mode { IO_READ, IO_WRITE };

/* A handle, or -1 if the file cannot be opened. */
int io_open(const char *path, enum io_mode mode);

/* Bytes read: fewer than asked for only at the end of the file. */
size_t io_read(int file, void *data, size_t bytes);

/* False if not all was written. */
bool io_write(int file, const void *data, size_t bytes);

/* False if something that was written did not reach the file. */
bool io_close(int file);

/* Text for the person who runs the program. */
void io_message(const char *text);

#endif
