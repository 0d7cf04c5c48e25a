/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

enum { LINE_BYTES = 1024, WAYS_MAX = 8 };

static char folder[] = "/tmp/tpcomm-nccl-XXXXXX", file[64];

tpcomm_status_t bench_nccl_log_begin(void) {
    if (file[0]) return TPCOMM_OK;
    if (!mkdtemp(folder)) return tpc_error_errno(TPCOMM_ERR_IO, errno, "no folder for NCCL's log: %s", folder);
    snprintf(file, sizeof file, "%s/log", folder);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT,TUNING,P2P,SHM,NET,NVLS", 1);
    setenv("NCCL_DEBUG_FILE", file, 1);
    return TPCOMM_OK;
}

void bench_nccl_log_end(void) {
    if (!file[0]) return;
    unlink(file);
    rmdir(folder);
    file[0] = '\0';
}

bool bench_nccl_log_is_on(void) {
    return file[0] != '\0';
}

uint64_t bench_nccl_log_size(void) {
    struct stat of;
    return file[0] && stat(file, &of) == 0 && of.st_size > 0 ? (uint64_t)of.st_size : 0;
}

/** The word behind a piece of a line; false where the piece is not there. */
static bool word_after(const char *line, const char *piece, char *word_p, size_t bytes) {
    const char *at = strstr(line, piece);
    if (!at) return false;
    at += strlen(piece);
    size_t length = strcspn(at, " ,\n");
    if (length == 0) return false;
    snprintf(word_p, bytes, "%.*s", (int)(length < bytes ? length : bytes - 1), at);
    return true;
}

/** NCCL before 2.24 wrote numbers for these. */
static void name_number(char *word, size_t bytes, const char *const *names, size_t count) {
    if (word[0] < '0' || word[0] > '9' || word[1] != '\0') return;
    size_t number = (size_t)(word[0] - '0');
    if (number < count) snprintf(word, bytes, "%s", names[number]);
}

/* NCCL's src/enqueue.cc and src/scheduler/symmetric_sched.cc, 2.20 to 2.28:
 *   [AllReduce: ]8192 Bytes -> Algo 1 proto 0 time 12.3
 *   AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}
 *   AllReduce [Symmetric]: 8192 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1
 *   AllGather [Copy Engine]: 8192 Bytes -> cudaMemcpy */
bool bench_nccl_log_parse(const char *line, bench_nccl_choice_t *choice_p) {
    static const char *const algorithms[] = {"TREE",      "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
                                             "NVLS_TREE", "PAT"};
    static const char *const protocols[] = {"LL", "LL128", "SIMPLE"};
    bench_nccl_choice_t choice;
    char word[24];
    int low, high;
    memset(&choice, 0, sizeof choice);
    if (!strstr(line, " Bytes -> ")) return false;
    if (word_after(line, "-> Kernel ", choice.protocol, sizeof choice.protocol)) {
        snprintf(choice.algorithm, sizeof choice.algorithm, "symmetric");
        if (word_after(line, "nchannels ", word, sizeof word)) choice.channels = (int32_t)strtol(word, NULL, 10);
    } else if (word_after(line, "-> Algo ", choice.algorithm, sizeof choice.algorithm) &&
               word_after(line, " proto ", choice.protocol, sizeof choice.protocol)) {
        name_number(choice.algorithm, sizeof choice.algorithm, algorithms, sizeof algorithms / sizeof algorithms[0]);
        name_number(choice.protocol, sizeof choice.protocol, protocols, sizeof protocols / sizeof protocols[0]);
        const char *channels = strstr(line, "channel{Lo..Hi}={");
        if (channels && sscanf(channels, "channel{Lo..Hi}={%d..%d}", &low, &high) == 2 && high >= low)
            choice.channels = high - low + 1;
    } else if (strstr(line, "[Copy Engine]")) {
        snprintf(choice.algorithm, sizeof choice.algorithm, "copy engine");
        snprintf(choice.protocol, sizeof choice.protocol, "-");
    } else {
        return false;
    }
    choice.known = true;
    *choice_p = choice;
    return true;
}

void bench_nccl_log_read(uint64_t from, bench_nccl_choice_t *choice_p) {
    char line[LINE_BYTES];
    memset(choice_p, 0, sizeof *choice_p);
    FILE *stream = file[0] ? fopen(file, "re") : NULL;
    if (!stream) return;
    if (fseeko(stream, (off_t)from, SEEK_SET) == 0)
        while (fgets(line, sizeof line, stream)) (void)bench_nccl_log_parse(line, choice_p);
    fclose(stream);
}

void bench_nccl_log_transports(char *text, size_t bytes) {
    struct {
        char name[40];
        unsigned long count;
    } ways[WAYS_MAX];
    size_t count = 0;
    char line[LINE_BYTES], word[40];
    FILE *stream = file[0] ? fopen(file, "re") : NULL;
    text[0] = '\0';
    if (!stream) return;
    while (fgets(line, sizeof line, stream)) {
        if (!strstr(line, "Channel ") || !word_after(line, " via ", word, sizeof word)) continue;
        size_t w = 0;
        while (w < count && strcmp(ways[w].name, word) != 0) w++;
        if (w == WAYS_MAX) continue;
        if (w == count) {
            snprintf(ways[w].name, sizeof ways[w].name, "%s", word);
            ways[count++].count = 0;
        }
        ways[w].count++;
    }
    fclose(stream);
    for (size_t w = 0, at = 0; w < count && at < bytes; w++) {
        int length = snprintf(text + at, bytes - at, "%s%s %lu", w ? ", " : "", ways[w].name, ways[w].count);
        if (length < 0) break;
        at += (size_t)length;
    }
}
