/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank of a launcher gives its rank + 1, and all get the sum: tpcomm-bench run -n 2 -- ./hello */
#include <stdio.h>
#include <tpcomm.h>

static int failed(const char *what) {
    return fprintf(stderr, "%s: %s\n", what, tpcomm_last_error()), 1;
}

int main(void) {
    tpcomm_t *comm;
    if (tpcomm_init_env(NULL, &comm) != TPCOMM_OK) return failed("init_env");
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_comm_info(comm, &info);
    float x = (float)(info.rank + 1);
    if (tpcomm_all_reduce(comm, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL) != TPCOMM_OK) return failed("all_reduce");
    printf("rank %d of %d: the sum is %g\n", info.rank, info.size, (double)x);
    if (tpcomm_finalize(comm) != TPCOMM_OK) return failed("finalize");
    return tpcomm_destroy(comm) == TPCOMM_OK ? 0 : failed("destroy");
}
