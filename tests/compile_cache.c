/* A compiler that compiles nothing twice: the tests make hundreds of projects, each with HWlib and the simulator.
 *
 * Built with -DCOMPILER="/usr/bin/gcc" -DCACHE="directory"; takes that compiler's place on PATH. It knows commands that
 * end in `-c file.c -o file.o`, and those that make a program of several sources: it compiles each by itself. Everything
 * else goes straight to the compiler, and so does what makes it say something.
 *
 * The cache has, by the hash of the command, the list of the files that were read, as the compiler's -MD writes it; and
 * by the hash of the command with the contents of those files, the object. Equal contents include equal files, so this
 * is all that a result depends on. It has the object by the hash of what the preprocessor makes of those files as well,
 * wherever they lie: accelerators differ in macros, and no file of the simulator uses them all. Thus only the folders
 * that debug information and sanitizers name may be those of an equal file.
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

static const uint64_t START = UINT64_C(14695981039346656037);

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

/* Copies a marker, such as `# 3 "folder/name.h" 1`, without the folder. The end of the copy. */
static char *marked(char *to, const char *marker, const char *end)
{
    const char *name = strchr(marker, '"') + 1, *slash = memrchr(name, '/', (size_t)(end - name));
    size_t number = (size_t)(name - marker);
    memmove(to, marker, number);
    name = slash ? slash + 1 : name;
    memmove(to + number, name, (size_t)(end - name));
    return to + number + (end - name);
}

/* What is left of the preprocessor's text without what no code depends on: where files lie, and files without text,
 * which have macros only. Markers say where the lines behind them are from. */
static File without_places(File text)
{
    char *to = text.bytes, *end = text.bytes; /* of what is left; markers and empty lines behind it may go */
    for (char *from = text.bytes, *next; from && (next = strchr(from, '\n')); from = next + 1) {
        size_t length = (size_t)(next + 1 - from);
        if (strncmp(from, "# ", 2) == 0) {
            to = marked(end, from, next + 1);
        } else {
            memmove(to, from, length);
            to += length;
            end = length == 1 ? end : to;
        }
    }
    return (File){text.bytes, (size_t)(end - text.bytes)};
}

/* Options that the preprocessor alone needs. */
static int is_preprocessors(const char *argument)
{
    return strncmp(argument, "-I", 2) == 0 || strncmp(argument, "-D", 2) == 0 || strncmp(argument, "-M", 2) == 0;
}

/* Where the cache has the object by what the preprocessor makes of the source. 0 if that fails or says something. */
static int find_preprocessed(Path path, char *arguments[], int count)
{
    Path text;
    in_cache(text, (uint64_t)getpid(), ".i");
    char **last = arguments + count - 4;
    char *preprocess[count + 3];
    memcpy(preprocess, arguments, (size_t)(count - 4) * sizeof *arguments);
    memcpy(preprocess + count - 4, (char *[]){"-MQ", last[3], "-E", last[1], "-o", text, NULL}, 7 * sizeof *arguments);
    int status = 1;
    int found = told(preprocess, &status).size == 0 && status == 0;
    if (found) {
        uint64_t hash = START;
        for (int index = 0; index < count - 3; index++) {
            if (strcmp(arguments[index], "-MF") == 0) {
                index++;
            } else if (!is_preprocessors(arguments[index])) {
                hash = hashed(hash, arguments[index], strlen(arguments[index]));
            }
        }
        File left = without_places(read_file(text));
        in_cache(path, hashed(hash, left.bytes, left.size), ".o");
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

/* A command that ends in `-c file.c -o file.o`. */
static int compile(char *arguments[], int count)
{
    char **last = arguments + count - 4;
    char *object = last[3];
    int asked = has(arguments, "-MD"); /* for the rule, beside the object, which it names */
    uint64_t command = START;
    for (int index = 0; index < count - !asked; index++) {
        command = hashed(command, arguments[index], strlen(arguments[index]));
    }
    Path rule, kept_rule, by_files, by_text;
    in_cache(rule, (uint64_t)getpid(), ".rule");
    in_cache(kept_rule, command, ".d");

    if (asked) {
        strcpy(rule, object);
        strcpy(strrchr(rule, '.') ? strrchr(rule, '.') : rule, ".d");
    }
    File dependencies = read_file(kept_rule);
    if (find_object(by_files, command, dependencies) && copied(by_files, object) &&
        (!asked || write_file(rule, dependencies))) {
        return 0;
    }
    char *with_rule[count + 4];
    memcpy(with_rule, arguments, (size_t)(count - 4) * sizeof *arguments);
    memcpy(with_rule + count - 4, (char *[]){"-MD", "-MF", rule}, 3 * sizeof *arguments);
    memcpy(with_rule + count - 1, last, 5 * sizeof *arguments);

    int status = 0;
    int preprocessed = find_preprocessed(by_text, with_rule, count + 3);
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

static int is_source(const char *argument)
{
    size_t length = strlen(argument);
    return length > 2 && argument[0] != '-' && strcmp(argument + length - 2, ".c") == 0;
}

/* Options that the linker alone needs. */
static int is_linkers(const char *argument)
{
    return strncmp(argument, "-l", 2) == 0 || strncmp(argument, "-L", 2) == 0 || strncmp(argument, "-Wl,", 4) == 0;
}

/* The options to compile one of several sources: all but the names of files. 0 for options that are not known to be of
 * one word each. */
static int options_of(char *arguments[], char *options[])
{
    static const char *const others[] = {"-c", "-E", "-S", "-x", "-I", "-D", "-L", "-T", "-MD", "-MMD", "-MF",
                                         "-include", "-isystem", "-Xlinker", "-fsyntax-only", "--coverage"};
    for (size_t index = 0; index < sizeof others / sizeof *others; index++) {
        if (has(arguments, others[index])) {
            return 0;
        }
    }
    int count = 0;
    options[count++] = *arguments++;
    for (; *arguments; arguments++) {
        int two = strcmp(*arguments, "-iquote") == 0;
        if (strcmp(*arguments, "-o") == 0 && arguments[1]) {
            arguments++;
        } else if (**arguments == '-' && !is_linkers(*arguments)) {
            options[count++] = *arguments;
        }
        if (two && arguments[1]) {
            options[count++] = *++arguments;
        }
    }
    return count;
}

/* A program of sources: each is compiled, then all are linked. -1 where the compiler is to do it all. */
static int build(char *arguments[], int count)
{
    char *options[count + 5];
    int of_sources = options_of(arguments, options), made = 0, status = 0;
    Path objects[64];
    for (int index = 1; index < count && of_sources && made < 64 && status == 0; index++) {
        if (is_source(arguments[index])) {
            snprintf(objects[made], sizeof(Path), "%s/%d.%d.o", CACHE, (int)getpid(), made);
            char *last[] = {(char[]){"-c"}, arguments[index], (char[]){"-o"}, objects[made], NULL};
            memcpy(options + of_sources, last, sizeof last);
            status = compile(options, of_sources + 4);
            arguments[index] = objects[made++];
        }
    }
    if (made == 0) {
        return -1;
    }
    if (status == 0) {
        File words = told(arguments, &status);
        fwrite(words.bytes, 1, words.size, stderr);
    }
    while (made) {
        unlink(objects[--made]);
    }
    return status;
}

int main(int count, char *arguments[])
{
    arguments[0] = (char[]){COMPILER}; /* gcc finds its parts beside itself */
    char **last = arguments + count - 4;
    int one = count >= 5 && strcmp(last[0], "-c") == 0 && strcmp(last[2], "-o") == 0 && strlen(last[3]) < sizeof(Path) &&
              !has(arguments, "-MF");
    int status = one ? compile(arguments, count) : build(arguments, count);
    if (status < 0) {
        execv(COMPILER, arguments);
        return 127;
    }
    return status;
}
