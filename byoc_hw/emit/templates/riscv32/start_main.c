/* The rest of start.S: main's arguments, and exit. */
#include "semihost.h"

#include <stdlib.h>

int main(int argc, char **argv);
void start_main(void);

enum { MAX_ARGUMENTS = 8 };

/* The words of the command line that the debugger or emulator was given. */
static int arguments_of(char *line, char **argv)
{
  static char name[] = "program"; /* the command line holds the arguments alone */
  int argc = 0;
  argv[argc++] = name;
  for (char *at = line; *at != '\0' && argc < MAX_ARGUMENTS; ++argc) {
    argv[argc] = at;
    while (*at != '\0' && *at != ' ') {
      ++at;
    }
    while (*at == ' ') {
      *at++ = '\0';
    }
  }
  return argc;
}

void start_main(void)
{
  static char line[512];
  static char *argv[MAX_ARGUMENTS + 1];
  const uintptr_t asked[] = {(uintptr_t)line, sizeof line};
  int argc = semihost(SEMIHOST_COMMAND_LINE, asked) == 0 ? arguments_of(line, argv) : 0;
  exit(main(argc, argv));
}

void exit(int status)
{
  semihost_exit(status);
  __builtin_unreachable();
}
