/* SPDX-License-Identifier: Apache-2.0 */
/* Check that what NCCL chose is read out of its log's lines, in the words of its versions, and nothing out of others.
 */
#include <string.h>

#include "check.h"
#include "nccl_log.h"

static void check_line(const char *line, const char *algorithm, const char *protocol, int32_t channels) {
    bench_nccl_choice_t choice;
    if (!bench_nccl_log_parse(line, &choice)) FAIL("not read: %s", line);
    CHECK(choice.known);
    if (strcmp(choice.algorithm, algorithm) != 0 || strcmp(choice.protocol, protocol) != 0)
        FAIL("%s: %s, %s", line, choice.algorithm, choice.protocol);
    CHECK_EQ(choice.channels, channels);
}

int main(void) {
    static const char *const others[] = {"",
                                         "\n",
                                         "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n",
                                         "h:1:1 [0] NCCL INFO AllReduce: 8192 Bytes -> \n",
                                         "h:1:1 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo \n",
                                         "h:1:1 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo RING\n",
                                         "h:1:1 [0] NCCL INFO Algo RING proto LL\n"};
    bench_nccl_choice_t untouched = {.channels = 7};
    check_line("h:1:1 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}\n", "RING", "LL",
               4);
    check_line("h:1:1 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={16..31}", "NVLS",
               "SIMPLE", 16);
    check_line("h:1:1 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo 1 proto 0 time 12.300000\n", "RING", "LL", 0);
    check_line("h:1:1 [0] NCCL INFO 8192 Bytes -> Algo 0 proto 2 time 12.300000\n", "TREE", "SIMPLE", 0);
    check_line("h:1:1 [0] NCCL INFO 8192 Bytes -> Algo 9 proto 9 time 12.300000\n", "9", "9", 0);
    check_line("h:1:1 [0] NCCL INFO AllReduce [Symmetric]: 8192 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads "
               "512 nWorks 1\n",
               "symmetric", "AllReduce_AGxLL_R", 8);
    check_line("h:1:1 [0] NCCL INFO AllGather [Copy Engine]: 8192 Bytes -> cudaMemcpy\n", "copy engine", "-", 0);
    check_line(
        "8 Bytes -> Algo AVERYLONGNAMEINDEEDTHATNOONEHAS proto ANOTHERLONGNAMETHATNOONEHAS channel{Lo..Hi}={9..1}",
        "AVERYLONGNAMEINDEEDTHAT", "ANOTHERLONGNAMETHATNOONEHAS", 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (bench_nccl_log_parse(others[i], &untouched)) FAIL("read: %s", others[i]);
    CHECK_EQ(untouched.channels, 7);
    CHECK_EQ(bench_nccl_log_size(), 0); /* no log was asked for */
    bench_nccl_log_read(0, &untouched);
    CHECK(!untouched.known);
    return 0;
}
