/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that what is written reads back exactly, in every locale; that what cannot be written is told; and that a file
 * is replaced whole or not at all, by any number of writers at once, leaving nothing behind.
 */
#include <dirent.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/json.h"
#include "child.h"
#include "comma_locale.h"

static char folder[] = "/tmp/tpcomm-test-json-write-XXXXXX";

static const char *path_in(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static tpc_json_writer_t *new_writer(void) {
    tpc_json_writer_t *writer;
    CHECK_OK(tpc_json_writer_new("tpcomm-test/1", &writer));
    return writer;
}

/** The document of a writer, by way of its text. */
static tpc_json_t *read_back(tpc_json_writer_t *writer) {
    char *text;
    tpc_json_t *doc;
    CHECK_OK(tpc_json_writer_text(writer, &text));
    CHECK(text[0] == '{' && text[strlen(text) - 1] == '\n');
    CHECK_OK(tpc_json_parse("t", text, strlen(text), &doc));
    CHECK_OK(tpc_json_check_schema(doc, "tpcomm-test/1"));
    free(text);
    return doc;
}

static void check_numbers(void) {
    static const uint64_t wholes[] = {0,
                                      1,
                                      2147483647,
                                      2147483648,
                                      4294967296,
                                      UINT64_C(1) << 40,
                                      999999999999999,
                                      1000000000000000,
                                      1000000000000001,
                                      9007199254740990,
                                      9007199254740991};
    static const int64_t signs[] = {0, -1, -2147483649, 2147483648, -9007199254740991, 9007199254740991};
    const double doubles[] = {0.0,
                              -0.0,
                              0.1,
                              1.0 / 3,
                              1e15,
                              1e16,
                              123456789012345680.0,
                              1.5,
                              -2.5e-7,
                              DBL_MAX,
                              -DBL_MAX,
                              DBL_MIN,
                              5e-324,
                              1 + DBL_EPSILON,
                              0.30000000000000004,
                              1e22,
                              1e23};
    tpc_json_writer_t *writer = new_writer();
    tpc_json_node_t *root = tpc_json_writer_root(writer), *array = tpc_json_add_array(writer, root, "wholes");
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) tpc_json_add_u64(writer, array, NULL, wholes[i]);
    array = tpc_json_add_array(writer, root, "signs");
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) tpc_json_add_i64(writer, array, NULL, signs[i]);
    array = tpc_json_add_array(writer, root, "doubles");
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++) {
        tpc_json_node_t *object = tpc_json_add_object(writer, array, NULL);
        tpc_json_add_double(writer, object, "v", doubles[i]);
    }
    tpc_json_add_double(writer, root, "nan", NAN);

    tpc_json_t *doc = read_back(writer);
    tpc_json_value_t value;
    CHECK_OK(tpc_json_array(tpc_json_root(doc), "wholes", &value));
    value = tpc_json_first(value);
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++, value = tpc_json_next(value)) {
        uint64_t got;
        CHECK_OK(tpc_json_as_u64(value, 0, UINT64_MAX, &got));
        CHECK(got == wholes[i]);
    }
    CHECK(value.node == NULL);
    CHECK_OK(tpc_json_array(tpc_json_root(doc), "signs", &value));
    CHECK_EQ(tpc_json_count(value), 6);
    CHECK_OK(tpc_json_array(tpc_json_root(doc), "doubles", &value));
    value = tpc_json_first(value);
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++, value = tpc_json_next(value)) {
        double got;
        CHECK_OK(tpc_json_double(value, "v", -DBL_MAX, DBL_MAX, &got));
        if (memcmp(&got, &doubles[i], sizeof got) != 0) FAIL("%a came back as %a", doubles[i], got);
    }
    CHECK(tpc_json_is_null(tpc_json_get(tpc_json_root(doc), "nan")));
    tpc_json_free(doc);

    char *text;
    CHECK_OK(tpc_json_writer_text(writer, &text));
    CHECK(strstr(text, "1000000000000000,") && strstr(text, "-9007199254740991,") && strstr(text, ":\t0.1"));
    free(text);
    tpc_json_writer_free(writer);
}

static void check_strings(void) {
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"", ""},
        {"q\" b\\ s/ n\n t\t c\x01\x1f\x7f", "q\" b\\ s/ n\n t\t c\x01\x1f\x7f"},
        {"\xc3\xa9\xf0\x9f\x98\x80", "\xc3\xa9\xf0\x9f\x98\x80"},
        {"a\xff\xc0\x80z", "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"},
        {"caf\xe9", "caf\xef\xbf\xbd"},
    };
    enum { CASES = sizeof cases / sizeof cases[0] };
    tpc_json_writer_t *writer = new_writer();
    tpc_json_node_t *root = tpc_json_writer_root(writer), *object = tpc_json_add_object(writer, root, "o");
    for (size_t i = 0; i < CASES; i++) tpc_json_add_string(writer, object, cases[i][0], cases[i][0]);
    tpc_json_add_string(writer, root, "null", NULL);
    tpc_json_add_bool(writer, root, "yes", true);
    tpc_json_add_bool(writer, root, "no", false);
    tpc_json_t *doc = read_back(writer);
    tpc_json_value_t value = tpc_json_get(tpc_json_root(doc), "o");
    CHECK_EQ(tpc_json_count(value), CASES);
    const char *text;
    for (size_t i = 0; i < CASES; i++) {
        CHECK_OK(tpc_json_string(value, cases[i][1], &text));
        CHECK(strcmp(text, cases[i][1]) == 0);
    }
    bool flag;
    CHECK(tpc_json_is_null(tpc_json_get(tpc_json_root(doc), "null")));
    CHECK_OK(tpc_json_bool(tpc_json_root(doc), "yes", &flag));
    CHECK(flag);
    CHECK_OK(tpc_json_bool(tpc_json_root(doc), "no", &flag));
    CHECK(!flag);
    tpc_json_free(doc);
    tpc_json_writer_free(writer);
}

/** What cannot be written; each spoils the whole document, told at its end. */
static void spoil(int kind, tpc_json_writer_t *writer, tpc_json_node_t *root) {
    tpc_json_node_t *node = root;
    switch (kind) {
    case 0:
        tpc_json_add_u64(writer, root, "n", (UINT64_C(1) << 53));
        break;
    case 1:
        tpc_json_add_u64(writer, root, "n", UINT64_MAX);
        break;
    case 2:
        tpc_json_add_i64(writer, root, "n", INT64_MIN);
        break;
    case 3:
        tpc_json_add_i64(writer, root, "n", INT64_C(1) << 53);
        break;
    case 4:
        tpc_json_add_double(writer, root, "n", INFINITY);
        break;
    case 5:
        tpc_json_add_double(writer, root, "n", -INFINITY);
        break;
    case 6:
        tpc_json_add_u64(writer, root, NULL, 1);
        break;
    case 7:
        tpc_json_add_u64(writer, tpc_json_add_array(writer, root, "n"), "n", 1);
        break;
    case 8:
        tpc_json_add_bool(writer, root, "n", true);
        tpc_json_add_bool(writer, root, "n", true);
        break;
    default:
        for (int i = 0; i < TPC_JSON_MAX_DEPTH; i++) node = tpc_json_add_object(writer, node, "n");
        break;
    }
}

static void check_refused(void) {
    char *text = NULL;
    for (int kind = 0; kind < 10; kind++) {
        tpc_json_writer_t *writer = new_writer();
        spoil(kind, writer, tpc_json_writer_root(writer));
        tpcomm_status_t want = kind == 9 ? TPCOMM_ERR_PARSE : TPCOMM_ERR_INVALID_ARG;
        tpcomm_status_t status = tpc_json_writer_text(writer, &text);
        if (status != want) FAIL("kind %d: %s (%s)", kind, tpcomm_status_name(status), tpcomm_last_error());
        CHECK_STATUS(tpc_json_write_file(writer, path_in("refused")), want);
        CHECK(access(path_in("refused"), F_OK) != 0);
        CHECK(text == NULL);
        tpc_json_writer_free(writer);
    }
    /* Nothing happens to a parent that was not made. */
    tpc_json_writer_t *writer = new_writer();
    CHECK(tpc_json_add_object(writer, NULL, "a") == NULL && tpc_json_add_array(writer, NULL, NULL) == NULL);
    tpc_json_add_u64(writer, NULL, "a", UINT64_MAX);
    tpc_json_add_i64(writer, NULL, "a", INT64_MIN);
    tpc_json_add_double(writer, NULL, "a", INFINITY);
    tpc_json_add_bool(writer, NULL, "a", true);
    tpc_json_add_string(writer, NULL, "a", "b");
    tpc_json_t *doc = read_back(writer);
    CHECK_EQ(tpc_json_count(tpc_json_root(doc)), 1);
    tpc_json_free(doc);
    tpc_json_writer_free(writer);
    tpc_json_writer_free(NULL);
}

/* ---------------------------------------------------------------- files */

static size_t count_files(void) {
    size_t count = 0;
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));) count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(dir);
    return count;
}

/** A document of size entries that says so itself. */
static void write_sized(const char *path, uint64_t size) {
    tpc_json_writer_t *writer = new_writer();
    tpc_json_node_t *root = tpc_json_writer_root(writer);
    tpc_json_add_u64(writer, root, "size", size);
    tpc_json_node_t *array = tpc_json_add_array(writer, root, "entries");
    for (uint64_t i = 0; i < size; i++) tpc_json_add_u64(writer, array, NULL, i);
    CHECK_OK(tpc_json_write_file(writer, path));
    tpc_json_writer_free(writer);
}

static uint64_t check_sized(const char *path) {
    tpc_json_t *doc;
    uint64_t size;
    CHECK_OK(tpc_json_read_file(path, &doc));
    CHECK_OK(tpc_json_u64(tpc_json_root(doc), "size", 0, UINT64_MAX, &size));
    CHECK_EQ(tpc_json_count(tpc_json_get(tpc_json_root(doc), "entries")), size);
    tpc_json_free(doc);
    return size;
}

static void check_writers(void) {
    enum { WRITERS = 8, ROUNDS = 25 };
    pid_t writers[WRITERS];
    const char *path = path_in("shared");
    write_sized(path, 3);
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = fork();
        CHECK(writers[i] >= 0);
        if (writers[i] > 0) continue;
        for (int round = 0; round < ROUNDS; round++) write_sized(path, (uint64_t)(i * 500 + round));
        _exit(0);
    }
    int running = WRITERS, reads = 0;
    while (running > 0) {
        int status;
        check_sized(path);
        reads++;
        for (int i = 0; i < WRITERS; i++) {
            if (writers[i] == 0 || waitpid(writers[i], &status, WNOHANG) != writers[i]) continue;
            CHECK_EQ(status, 0);
            writers[i] = 0;
            running--;
        }
    }
    uint64_t last = check_sized(path);
    CHECK(last % 500 == ROUNDS - 1);
    CHECK(reads > 0);
    CHECK_EQ(count_files(), 1);
    CHECK_EQ(unlink(path), 0);
}

static void write_too_much(void) {
    /* No room: the failure a full disk gives, made by a limit. */
    const struct rlimit limit = {4096, 4096};
    tpc_json_writer_t *writer = new_writer();
    tpc_json_node_t *array = tpc_json_add_array(writer, tpc_json_writer_root(writer), "entries");
    for (uint64_t i = 0; i < 5000; i++) tpc_json_add_u64(writer, array, NULL, i);
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_STATUS(tpc_json_write_file(writer, path_in("kept")), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("cannot be written: File too large");
    tpc_json_writer_free(writer);
}

static void write_forbidden(void) {
    tpc_json_writer_t *writer = new_writer();
    CHECK_EQ(chmod(folder, 0555), 0);
    if (geteuid() == 0) CHECK_EQ(seteuid(65534), 0);
    CHECK_STATUS(tpc_json_write_file(writer, path_in("kept")), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("Permission denied");
    tpc_json_writer_free(writer);
    _exit(0); /* no exit: a leak checker cannot look into a process that changed its user */
}

static void check_failures(void) {
    static char output[CHILD_OUTPUT_BYTES];
    tpc_json_writer_t *writer = new_writer();
    write_sized(path_in("kept"), 7);
    child_run(write_too_much, output);
    CHECK_EQ(count_files(), 1);
    CHECK_EQ(check_sized(path_in("kept")), 7);
    child_run(write_forbidden, output);
    CHECK_EQ(chmod(folder, 0700), 0);
    CHECK_EQ(check_sized(path_in("kept")), 7);
    CHECK_EQ(count_files(), 1);

    CHECK_STATUS(tpc_json_write_file(writer, path_in("none/x")), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("No such file or directory");
    CHECK_STATUS(tpc_json_write_file(writer, folder), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("Is a directory");
    CHECK_STATUS(tpc_json_write_file(writer, ""), TPCOMM_ERR_IO);
    CHECK_STATUS(tpc_json_write_file(writer, "/dev/full"), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("No space left on device");
    CHECK_STATUS(tpc_json_write_file(writer, "/dev/tpcomm-no-such"), TPCOMM_ERR_IO);
    CHECK_EQ(mkfifo(path_in("fifo"), 0600), 0);
    CHECK_STATUS(tpc_json_write_file(writer, path_in("fifo")), TPCOMM_ERR_IO); /* nobody reads it */
    CHECK_EQ(unlink(path_in("fifo")), 0);
    CHECK_EQ(count_files(), 1);
    CHECK_EQ(unlink(path_in("kept")), 0);
    tpc_json_writer_free(writer);
}

static void write_to_stdout(void) {
    int fd = open(path_in("out"), O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    CHECK_EQ(write(STDOUT_FILENO, " \n", 2), 2);
    write_sized("/dev/stdout", 4);
}

/** Links, devices and a plain file's mode. */
static void check_kinds(void) {
    static char output[CHILD_OUTPUT_BYTES];
    struct stat about;
    char target[256];
    mode_t before = umask(027);
    write_sized(path_in("plain"), 1);
    umask(before);
    CHECK_EQ(stat(path_in("plain"), &about), 0);
    CHECK_EQ(about.st_mode & 0777, 0640);

    /* A link stays a link, to a file that is replaced. */
    CHECK_EQ(symlink("plain", path_in("link")), 0);
    write_sized(path_in("link"), 2);
    CHECK_EQ(lstat(path_in("link"), &about), 0);
    CHECK(S_ISLNK(about.st_mode));
    CHECK_EQ(check_sized(path_in("plain")), 2);
    CHECK_EQ(unlink(path_in("link")), 0);

    /* A device stays what it is, and so does what stdout leads to. */
    CHECK_EQ(lstat("/dev/stdout", &about), 0);
    mode_t kind = about.st_mode & S_IFMT;
    write_sized("/dev/null", 2);
    CHECK_EQ(stat("/dev/null", &about), 0);
    CHECK(S_ISCHR(about.st_mode));
    child_run(write_to_stdout, output);
    CHECK_EQ(lstat("/dev/stdout", &about), 0);
    CHECK_EQ(about.st_mode & S_IFMT, kind);
    CHECK_EQ(check_sized(path_in("out")), 4);

    /* A bare name goes to the current folder. */
    CHECK(getcwd(target, sizeof target) != NULL);
    CHECK_EQ(chdir(folder), 0);
    write_sized("bare", 5);
    CHECK_EQ(check_sized("bare"), 5);
    CHECK_EQ(chdir(target), 0);
    static const char *const names[] = {"plain", "out", "bare"};
    for (size_t i = 0; i < 3; i++) CHECK_EQ(unlink(path_in(names[i])), 0);
    CHECK_EQ(count_files(), 0);
}

int main(void) {
    CHECK(mkdtemp(folder) != NULL);
    check_numbers();
    check_strings();
    check_refused();
    check_writers();
    check_failures();
    check_kinds();
    comma_locale_set();
    check_numbers();
    check_strings();
    CHECK_EQ(rmdir(folder), 0);
    return 0;
}
