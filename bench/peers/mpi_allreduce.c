/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times MPI_Allreduce of float32 sums in host memory: the peer of tpcomm's cpu device. One source for every MPI; it
 * uses nothing of tpcomm. See README.md beside it.
 *
 * A sample is one call, and counts as long as the slowest rank took for it. It is taken twice: "aligned", each call
 * right after a barrier, and "train", the calls back to back as a model's layers make them.
 */
#include <getopt.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Defaults; the smallest and the greatest message of a decode step lie between them. */
#define BYTES_MIN   1024
#define BYTES_MAX   (16 << 20)
#define BYTES_LIMIT (1 << 30)

/* 2000 samples where a call is short; 100, the least for a p95, where one takes milliseconds. */
#define SAMPLES_MAX   2000
#define SAMPLES_MIN   100
#define SAMPLES_BYTES ((int64_t)256 << 20)

/* Exit codes of tpcomm's own tools. */
enum { EXIT_OK = 0, EXIT_WRONG = 1, EXIT_USAGE = 2 };

typedef struct {
    int64_t bytes_min, bytes_max;
    int samples; /* 0: by size */
    bool json;
} options_t;

typedef struct {
    double p50_us, p95_us;
} summary_t;

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Whole numbers whose sums fp32 holds exactly, in whatever order the library adds. */
static float input_value(int rank, int64_t i) {
    return (float)((i % 97 + 1) * (rank + 1));
}

/* Page-aligned, as the buffers of an engine; NULL where there is no memory. */
static float *allocate(int64_t count) {
    void *memory;
    return posix_memalign(&memory, 4096, (size_t)count * sizeof(float)) ? NULL : memory;
}

static void poison(float *out, int64_t count) {
    memset(out, 0xFF, (size_t)count * sizeof(float));
}

static int64_t count_wrong(const float *out, int64_t count, int size) {
    int64_t wrong = 0, ranks_sum = (int64_t)size * (size + 1) / 2;
    for (int64_t i = 0; i < count; i++) wrong += !(out[i] == (float)((i % 97 + 1) * ranks_sum));
    return wrong;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank, as tpcomm-bench. */
static double percentile(const double *sorted, int n, int percent) {
    int index = (n * percent + 99) / 100;
    return sorted[index > 0 ? index - 1 : 0];
}

/* Every rank's samples to the slowest rank's, then sorted; the same on every rank. */
static summary_t summarise(double *samples_us, int n) {
    MPI_Allreduce(MPI_IN_PLACE, samples_us, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(samples_us, (size_t)n, sizeof(double), compare);
    return (summary_t){percentile(samples_us, n, 50), percentile(samples_us, n, 95)};
}

static summary_t measure(const float *in, float *out, int count, int n, bool aligned, double *samples_us) {
    for (int i = -(n / 10 + 5); i < n; i++) { /* negative: warm-up */
        if (aligned || i == 0) MPI_Barrier(MPI_COMM_WORLD);
        uint64_t start_ns = clock_ns();
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i >= 0) samples_us[i] = (double)(clock_ns() - start_ns) / 1e3;
    }
    return summarise(samples_us, n);
}

static void print_header(const options_t *options, int size) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    for (char *c = version; *c; c++) {
        if (*c == '\n' || *c == ',') { /* the first line is enough to name the library */
            *c = '\0';
            break;
        }
        if (*c == '"' || *c == '\\' || *c == '\t') *c = ' ';
    }
    if (options->json) {
        printf("{\"library\": \"%s\", \"ranks\": %d, \"dtype\": \"f32\", \"op\": \"sum\"}\n", version, size);
    } else {
        printf("%s, %d ranks, MPI_Allreduce of f32 sums, times of the slowest rank in us\n\n", version, size);
        printf("%10s %8s | %11s %9s | %11s %9s | %8s %8s %6s\n", "bytes", "samples", "aligned p50", "p95", "train p50",
               "p95", "algbw", "busbw", "wrong");
    }
}

static void print_row(const options_t *options, int64_t bytes, int samples, summary_t aligned, summary_t train,
                      int size, int64_t wrong) {
    double algbw_gbs = (double)bytes / aligned.p50_us / 1e3, busbw_gbs = algbw_gbs * 2 * (size - 1) / size;
    const char *format = options->json
                             ? "{\"bytes\": %lld, \"samples\": %d, \"aligned_p50_us\": %.3f, \"aligned_p95_us\": %.3f, "
                               "\"train_p50_us\": %.3f, \"train_p95_us\": %.3f, \"algbw_gbs\": %.3f, "
                               "\"busbw_gbs\": %.3f, \"wrong\": %lld}\n"
                             : "%10lld %8d | %11.2f %9.2f | %11.2f %9.2f | %8.3f %8.3f %6lld\n";
    printf(format, (long long)bytes, samples, aligned.p50_us, aligned.p95_us, train.p50_us, train.p95_us, algbw_gbs,
           busbw_gbs, (long long)wrong);
    fflush(stdout);
}

static bool parse_number(const char *text, int64_t minimum, int64_t maximum, int64_t *value_p) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    long long value = strtoll(text, &end, 10); /* too long: LLONG_MAX, over the maximum */
    if (*end || value < minimum || value > maximum) return false;
    *value_p = value;
    return true;
}

static bool parse_options(int argc, char **argv, options_t *options) {
    static const struct option names[] = {{"min-bytes", required_argument, NULL, 'b'},
                                          {"max-bytes", required_argument, NULL, 'e'},
                                          {"samples", required_argument, NULL, 's'},
                                          {"json", no_argument, NULL, 'j'},
                                          {0}};
    int64_t samples = 0;
    *options = (options_t){.bytes_min = BYTES_MIN, .bytes_max = BYTES_MAX};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        bool valid = false;
        if (c == 'b') valid = parse_number(optarg, sizeof(float), BYTES_LIMIT, &options->bytes_min);
        if (c == 'e') valid = parse_number(optarg, sizeof(float), BYTES_LIMIT, &options->bytes_max);
        if (c == 's') valid = parse_number(optarg, SAMPLES_MIN, 1000000, &samples);
        if (c == 'j') valid = options->json = true;
        if (!valid) return false;
    }
    options->samples = (int)samples;
    return optind == argc && options->bytes_min <= options->bytes_max;
}

int main(int argc, char **argv) {
    int rank, size;
    options_t options;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!parse_options(argc, argv, &options)) {
        if (rank == 0)
            fprintf(stderr,
                    "usage: mpi_allreduce [--min-bytes N] [--max-bytes N] [--samples N] [--json]\n"
                    "sizes are doubled from %d to %d; at most %d; samples a size, at least %d\n",
                    BYTES_MIN, BYTES_MAX, BYTES_LIMIT, SAMPLES_MIN);
        MPI_Finalize();
        return EXIT_USAGE;
    }

    int64_t count_max = options.bytes_max / (int64_t)sizeof(float);
    int samples_max = options.samples ? options.samples : SAMPLES_MAX;
    float *in = allocate(count_max), *out = allocate(count_max);
    double *samples_us = malloc((size_t)samples_max * sizeof(double));
    if (!in || !out || !samples_us) {
        fprintf(stderr, "rank %d: no memory for 2 x %lld bytes\n", rank, (long long)options.bytes_max);
        MPI_Abort(MPI_COMM_WORLD, EXIT_USAGE);
    }
    for (int64_t i = 0; i < count_max; i++) in[i] = input_value(rank, i);

    int64_t wrong_sum = 0;
    if (rank == 0) print_header(&options, size);
    for (int64_t bytes = options.bytes_min; bytes <= options.bytes_max; bytes *= 2) {
        int64_t wrong = 0, count = bytes / (int64_t)sizeof(float), samples = SAMPLES_BYTES / bytes;
        summary_t kinds[2]; /* train, aligned */
        if (samples > SAMPLES_MAX) samples = SAMPLES_MAX;
        if (samples < SAMPLES_MIN) samples = SAMPLES_MIN;
        if (options.samples) samples = options.samples;
        for (int aligned = 0; aligned < 2; aligned++) {
            poison(out, count);
            kinds[aligned] = measure(in, out, (int)count, (int)samples, aligned, samples_us);
            wrong += count_wrong(out, count, size);
        }
        MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        wrong_sum += wrong;
        if (rank == 0) print_row(&options, bytes, (int)samples, kinds[1], kinds[0], size, wrong);
    }

    free(in);
    free(out);
    free(samples_us);
    MPI_Finalize();
    return wrong_sum ? EXIT_WRONG : EXIT_OK;
}
