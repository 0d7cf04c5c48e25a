/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a tensor-parallel layer in one call: sum the ranks' partial rows, add the residual, normalise.
 * tpcomm-bench run -n 2 -- ./fused
 */
#include <stdio.h>
#include <tpcomm.h>

enum { HIDDEN = 256, TOKENS = 2 };

static int failed(const char *what) {
    return fprintf(stderr, "%s: %s\n", what, tpcomm_last_error()), 1;
}

int main(void) {
    static float partial[TOKENS * HIDDEN], residual[TOKENS * HIDDEN], weight[HIDDEN], out[TOKENS * HIDDEN];
    tpcomm_t *comm;
    if (tpcomm_init_env(NULL, &comm) != TPCOMM_OK) return failed("init_env");
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_comm_info(comm, &info);
    for (int i = 0; i < TOKENS * HIDDEN; i++) {
        partial[i] = i % 2 == 0 ? 1 : -1; /* this rank's part of the layer's result */
        residual[i] = i % 2 == 0 ? 1 : -1;
    }
    for (int i = 0; i < HIDDEN; i++) weight[i] = 0.5f;
    tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                              .dtype = TPCOMM_F32,
                              .hidden = HIDDEN,
                              .tokens = TOKENS,
                              .eps = 1e-6f,
                              .in = partial,
                              .weight = weight,
                              .residual = residual,
                              .out = out};
    if (tpcomm_all_reduce_rms_norm(comm, &norm, NULL) != TPCOMM_OK) return failed("all_reduce_rms_norm");
    printf("rank %d of %d: residual %g %g, out %g %g\n", info.rank, info.size, (double)residual[0], (double)residual[1],
           (double)out[0], (double)out[1]);
    if (tpcomm_finalize(comm) != TPCOMM_OK) return failed("finalize");
    return tpcomm_destroy(comm) == TPCOMM_OK ? 0 : failed("destroy");
}
