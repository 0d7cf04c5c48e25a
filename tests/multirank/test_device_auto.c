/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a group computes on the cpu device where no rank has a GPU, and says why in its log; that asking for CUDA
 * there is refused on all ranks with the same reason; in any build, on any machine. (GPUs are hidden the way CUDA has
 * it.) And that two ranks on one GPU are refused on all ranks, naming both, the GPU and the way out (I1): here with
 * GPUs that are only said to be there.
 */
#include "multirank/ranks.h"

static int reasons;

static void count_reason(void *arg, int32_t level, const char *subsystem, const char *line) {
    (void)arg;
    if (level == TPCOMM_LOG_INFO && strcmp(subsystem, "init") == 0 &&
        strstr(line, "device auto: the cpu device") != NULL)
        reasons++;
}

static void one_call(rank_t *rank) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_rank_info_t peer = {.struct_size = sizeof peer};
    float in = (float)(rank->rank + 1), out = 0;
    CHECK_OK(tpcomm_comm_info(rank->comm, &info));
    CHECK_EQ(info.device_kind, TPCOMM_DEVICE_CPU);
    CHECK(strcmp(info.topology, "cpu") == 0);
    CHECK_OK(tpcomm_rank_info(rank->comm, 0, &peer));
    CHECK(peer.device[0] == '\0' && peer.bus_id[0] == '\0' && peer.link[0] == '\0');
    CHECK_OK(tpcomm_all_reduce(rank->comm, &in, &out, 1, TPCOMM_F32, TPCOMM_SUM, NULL));
    CHECK(out == 3.0f);
}

static void refused(int32_t r, int32_t size, void *arg) {
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    (void)r, (void)size, (void)arg;
    config.device_kind = TPCOMM_DEVICE_CUDA;
    CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("device cuda was asked for, but rank ");
    if (strstr(tpcomm_last_error(), "no CUDA") == NULL) FAIL("no reason in: %s", tpcomm_last_error());
}

static void duplicates(int32_t r, int32_t size, void *arg) {
    static const char *const gpus[] = {"set@pretended_gpu:7", "set@pretended_gpu:8", "set@pretended_gpu:7"};
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    (void)size;
    ranks_set_hooks(gpus[r]);
    config.device_kind = *(const int *)arg;
    CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_DUPLICATE_DEVICE);
    CHECK_ERROR_HAS("ranks 0 and 2 are both on pretended GPU (0000:07:00.0)");
    CHECK_ERROR_HAS("cudaSetDevice(local rank)");
    CHECK_ERROR_HAS("TPCOMM_SHARE_DEVICE=1");
}

int main(void) {
    static const char *const hidden[] = {"", "-1"};
    tpcomm_config_t config = ranks_config();
    config.device_kind = TPCOMM_DEVICE_AUTO;
    CHECK_OK(tpcomm_log_set(count_reason, NULL, TPCOMM_LOG_INFO));
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(setenv("CUDA_VISIBLE_DEVICES", hidden[i], 1), 0);
        ranks_run(RANKS_PROCESSES, 2, &config, one_call, NULL);
        ranks_fork(2, refused, NULL);
    }
    for (int kind = TPCOMM_DEVICE_AUTO; kind <= TPCOMM_DEVICE_CUDA; kind++) ranks_fork(3, duplicates, &kind);
    ranks_run(RANKS_THREADS, 2, &config, one_call, NULL); /* here, where CUDA may start and stay */
    CHECK_EQ(reasons, 1);
    return 0;
}
