/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks as threads of one process: each contributes {1, 2, 3} * (rank + 1), both get {3, 6, 9}. */
#include <pthread.h>
#include <stdio.h>
#include <tpcomm.h>

static void *rank_main(void *arg) {
    tpcomm_t *comm = arg;
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_comm_info(comm, &info);
    float in[3], out[3];
    for (int i = 0; i < 3; i++) in[i] = (float)((i + 1) * (info.rank + 1));
    if (tpcomm_all_reduce(comm, in, out, 3, TPCOMM_F32, TPCOMM_SUM, NULL) == TPCOMM_OK)
        printf("rank %d of %d: %g %g %g\n", info.rank, info.size, out[0], out[1], out[2]);
    else
        fprintf(stderr, "rank %d: %s\n", info.rank, tpcomm_last_error());
    return NULL;
}

int main(void) {
    tpcomm_t *comms[2];
    if (tpcomm_init_local(2, NULL, NULL, comms) != TPCOMM_OK) return fprintf(stderr, "%s\n", tpcomm_last_error()), 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, rank_main, comms[1]) != 0) return 1;
    rank_main(comms[0]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) tpcomm_destroy(comms[i]);
    return 0;
}
