/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The groups of an engine with 2 tensor parallel ranks and as many replicas as the launcher's ranks make:
 * tpcomm-bench run -n 4 -- ./mesh
 */
#include <stdio.h>
#include <tpcomm.h>

static int failed(const char *what) {
    return fprintf(stderr, "%s: %s\n", what, tpcomm_last_error()), 1;
}

int main(void) {
    tpcomm_t *world, *tp, *dp;
    if (tpcomm_init_env(NULL, &world) != TPCOMM_OK) return failed("init_env");
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_comm_info(world, &info);

    tpcomm_mesh_t *mesh;
    tpcomm_mesh_config_t sizes = {.struct_size = sizeof sizes, .tp = 2, .dp = info.size / 2};
    if (tpcomm_mesh_create(world, &sizes, &mesh) != TPCOMM_OK) return failed("mesh_create");
    char text[1024];
    if (tpcomm_mesh_text(mesh, text, sizeof text) != TPCOMM_OK) return failed("mesh_text");
    if (info.rank == 0) printf("%s", text);
    if (tpcomm_mesh_group(mesh, "tp", &tp) != TPCOMM_OK || tpcomm_mesh_group(mesh, "dp", &dp) != TPCOMM_OK)
        return failed("mesh_group");

    /* A layer's partial results are summed over tp; dp's ranks count the tokens of all replicas. */
    float partial = (float)(1 << info.rank);
    int64_t tokens = 100 + info.rank;
    if (tpcomm_all_reduce(tp, &partial, &partial, 1, TPCOMM_F32, TPCOMM_SUM, NULL) != TPCOMM_OK) return failed("tp");
    if (tpcomm_all_reduce(dp, &tokens, &tokens, 1, TPCOMM_I64, TPCOMM_SUM, NULL) != TPCOMM_OK) return failed("dp");
    printf("rank %d: tp sum %g, dp sum %lld\n", info.rank, (double)partial, (long long)tokens);

    if (tpcomm_mesh_finalize(mesh) != TPCOMM_OK || tpcomm_finalize(world) != TPCOMM_OK) return failed("finalize");
    tpcomm_mesh_destroy(mesh);
    return tpcomm_destroy(world) == TPCOMM_OK ? 0 : failed("destroy");
}
