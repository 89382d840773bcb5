/* A compiler that compiles nothing twice: the tests make hundreds of projects, each with HWlib and the simulator.
 *
 * Built with -DCOMPILER="/usr/bin/gcc" -DCACHE="directory"; takes that compiler's place on PATH. It knows commands that
 * end in `-c file.c -o file.o`. Everything else goes straight to the compiler, and so does what makes it say something.
 *
 * The cache has, by the hash of the command, the list of the files that were read, as the compiler's -MD writes it; and
 * by the hash of the command with the contents of those files, the object. Equal contents include equal files, so this
 * is all that a result depends on. Where no object is known so, one may be by the hash of what the preprocessor makes of
 * the file, with the command but for its own options: most of the simulator knows few of the numbers that its
 * configuration has. There temporary directories have equal names.
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
    int whole = file.bytes && write_file(to, file);
    free(file.bytes);
    return whole;
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

/* The names of temporary directories made equal: what Python's tempfile puts behind a prefix. */
static void make_equal(char *text)
{
    const char prefix[] = "/byoc_hw_";
    for (char *at = text; (at = strstr(at, prefix)) != NULL;) {
        at += sizeof prefix - 1;
        memset(at, 'x', strnlen(at, 8));
    }
}

static uint64_t hashed_argument(uint64_t hash, const char *given)
{
    char *argument = strdup(given);
    make_equal(argument);
    hash = hashed(hash, argument, strlen(argument));
    free(argument);
    return hash;
}

static int has(char *arguments[], const char *wanted)
{
    while (*arguments && strcmp(*arguments, wanted) != 0) {
        arguments++;
    }
    return *arguments != NULL;
}

/* How many of the first arguments are for the preprocessor, whose text has all that they do. */
static int for_preprocessor(char *const arguments[])
{
    static char *alone[] = {"-MD", "-MMD", "-MP", NULL}, *with_another[] = {"-include", "-iquote", "-isystem", NULL};
    if (has(with_another, arguments[0])) {
        return 2;
    }
    return has(alone, arguments[0]) || (arguments[0][0] == '-' && strspn(arguments[0] + 1, "DIU") > 0);
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

/* How a run of the compiler ended, and what it said. */
static int ran(char *arguments[], File *words)
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
    *words = read_file(said);
    unlink(said);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
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
    uint64_t command = hashed(UINT64_C(14695981039346656037), COMPILER, strlen(COMPILER)), proper = command;
    for (int index = 1; index < count; index++) {
        command = hashed_argument(command, arguments[index]);
    }
    for (int index = 1, skipped; index < count - 4; index += skipped ? skipped : 1) {
        skipped = for_preprocessor(arguments + index);
        proper = skipped ? proper : hashed_argument(proper, arguments[index]);
    }
    Path text, rule, kept_rule, by_contents, by_text;
    in_cache(text, (uint64_t)getpid(), ".i");
    in_cache(rule, (uint64_t)getpid(), ".rule");
    in_cache(kept_rule, command, ".d");
    int asked = has(arguments, "-MD");
    if (asked) { /* for the rule, beside the object */
        strcpy(rule, last[3]);
        strcpy(strrchr(rule, '.') ? strrchr(rule, '.') : rule, ".d");
    }
    File dependencies = read_file(kept_rule);
    if (find_object(by_contents, command, dependencies) && copied(by_contents, last[3]) &&
        (!asked || write_file(rule, dependencies))) {
        return 0;
    }
    char *preprocess[count + 7];
    memcpy(preprocess, arguments, (size_t)(count - 4) * sizeof *arguments);
    char *to_text[] = {"-g0", /* else the text names the directory */
                       "-MD", "-MF", rule, "-MT", last[3], "-E", last[1], "-o", text};
    memcpy(preprocess + count - 4, to_text, sizeof to_text);
    preprocess[count + 6] = NULL;
    File words;
    int silent = ran(preprocess, &words) == 0 && words.size == 0, status = 0;
    File preprocessed = read_file(text);
    unlink(text);
    make_equal(preprocessed.bytes ? preprocessed.bytes : "");
    in_cache(by_text, hashed(proper, preprocessed.bytes, preprocessed.size), ".t.o");
    /* It has not the bytes that assembly includes. */
    int all_in_text = preprocessed.bytes && !strstr(preprocessed.bytes, ".incbin");
    if (!silent || !all_in_text || !copied(by_text, last[3])) {
        status = ran(arguments, &words);
        fwrite(words.bytes, 1, words.size, stderr);
        silent = silent && status == 0 && words.size == 0 && (!all_in_text || copied(last[3], by_text));
    }
    dependencies = read_file(rule);
    if (silent && find_object(by_contents, command, dependencies) && copied(last[3], by_contents)) {
        write_file(kept_rule, dependencies);
    }
    if (!asked) {
        unlink(rule);
    }
    return status;
}
