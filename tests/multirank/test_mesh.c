/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check meshes against written tables (TP fastest, as vLLM lays its ranks out), in worlds of 4, 8, 16 and 32: the text,
 * each rank's groups and sums over them; and that wrong sizes are refused on every rank at once, naming them (J8).
 */
#include "base/clock.h"
#include "multirank/ranks.h"

typedef struct {
    int32_t world;
    tpcomm_mesh_config_t config;
    const char *text;
} table_t;

static const table_t tables[] = {
    {4,
     {.dp = 2, .pp = 1, .tp = 2},
     "tp: {0,1} {2,3}\ncp: {0} {1} {2} {3}\npp: {0} {1} {2} {3}\ndp: {0,2} {1,3}\nep: {0,1,2,3}\n"},
    {4,
     {.pp = 2, .tp = 2},
     "tp: {0,1} {2,3}\ncp: {0} {1} {2} {3}\npp: {0,2} {1,3}\ndp: {0} {1} {2} {3}\nep: {0,1} {2,3}\n"},
    {4,
     {.tp = 4, .ep = 2},
     "tp: {0,1,2,3}\ncp: {0} {1} {2} {3}\npp: {0} {1} {2} {3}\ndp: {0} {1} {2} {3}\nep: {0,1} {2,3}\n"},
    {4,
     {.dp = 4, .ep = 1},
     "tp: {0} {1} {2} {3}\ncp: {0} {1} {2} {3}\npp: {0} {1} {2} {3}\ndp: {0,1,2,3}\nep: {0} {1} {2} {3}\n"},
    {8,
     {.dp = 2, .pp = 2, .tp = 2},
     "tp: {0,1} {2,3} {4,5} {6,7}\ncp: {0} {1} {2} {3} {4} {5} {6} {7}\npp: {0,2} {1,3} {4,6} {5,7}\n"
     "dp: {0,4} {1,5} {2,6} {3,7}\nep: {0,1,4,5} {2,3,6,7}\n"},
    {8,
     {.cp = 2, .pp = 2, .tp = 2, .ep = 2},
     "tp: {0,1} {2,3} {4,5} {6,7}\ncp: {0,2} {1,3} {4,6} {5,7}\npp: {0,4} {1,5} {2,6} {3,7}\n"
     "dp: {0} {1} {2} {3} {4} {5} {6} {7}\nep: {0,1} {2,3} {4,5} {6,7}\n"},
    {8,
     {.tp = 8},
     "tp: {0,1,2,3,4,5,6,7}\ncp: {0} {1} {2} {3} {4} {5} {6} {7}\npp: {0} {1} {2} {3} {4} {5} {6} {7}\n"
     "dp: {0} {1} {2} {3} {4} {5} {6} {7}\nep: {0,1,2,3,4,5,6,7}\n"},
    {16,
     {.dp = 2, .pp = 2, .tp = 4, .ep = 8},
     "tp: {0,1,2,3} {4,5,6,7} {8,9,10,11} {12,13,14,15}\n"
     "cp: {0} {1} {2} {3} {4} {5} {6} {7} {8} {9} {10} {11} {12} {13} {14} {15}\n"
     "pp: {0,4} {1,5} {2,6} {3,7} {8,12} {9,13} {10,14} {11,15}\n"
     "dp: {0,8} {1,9} {2,10} {3,11} {4,12} {5,13} {6,14} {7,15}\n"
     "ep: {0,1,2,3,8,9,10,11} {4,5,6,7,12,13,14,15}\n"},
    {32,
     {.dp = 2, .pp = 2, .tp = 8, .ep = 16},
     "tp: {0,1,2,3,4,5,6,7} {8,9,10,11,12,13,14,15} {16,17,18,19,20,21,22,23} {24,25,26,27,28,29,30,31}\n"
     "cp: {0} {1} {2} {3} {4} {5} {6} {7} {8} {9} {10} {11} {12} {13} {14} {15} {16} {17} {18} {19} {20} {21} {22} "
     "{23} "
     "{24} {25} {26} {27} {28} {29} {30} {31}\n"
     "pp: {0,8} {1,9} {2,10} {3,11} {4,12} {5,13} {6,14} {7,15} {16,24} {17,25} {18,26} {19,27} {20,28} {21,29} "
     "{22,30} "
     "{23,31}\n"
     "dp: {0,16} {1,17} {2,18} {3,19} {4,20} {5,21} {6,22} {7,23} {8,24} {9,25} {10,26} {11,27} {12,28} {13,29} "
     "{14,30} "
     "{15,31}\n"
     "ep: {0,1,2,3,4,5,6,7,16,17,18,19,20,21,22,23} {8,9,10,11,12,13,14,15,24,25,26,27,28,29,30,31}\n"},
};

static void body(rank_t *rank) {
    const table_t *table = rank->arg;
    tpcomm_mesh_config_t config = table->config;
    tpcomm_mesh_t *mesh = NULL;
    char text[2048], cut[8];
    config.struct_size = sizeof config;
    CHECK_OK(tpcomm_mesh_create(rank->comm, &config, &mesh));
    CHECK_OK(tpcomm_mesh_text(mesh, text, sizeof text));
    if (strcmp(text, table->text) != 0) FAIL("got\n%s, want\n%s", text, table->text);
    CHECK_STATUS(tpcomm_mesh_text(mesh, cut, sizeof cut), TPCOMM_ERR_TOO_SMALL);
    static const char *const kinds[] = {"tp", "cp", "pp", "dp", "ep"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        tpcomm_t *group = NULL;
        tpcomm_info_t info = {.struct_size = sizeof info};
        int32_t ranks[TPCOMM_MAX_RANKS];
        uint32_t value = 1u << rank->rank, out = 0, want = 0;
        CHECK_OK(tpcomm_mesh_group(mesh, kinds[k], &group));
        CHECK_OK(tpcomm_comm_info(group, &info));
        CHECK(strcmp(info.name, kinds[k]) == 0);
        CHECK_OK(tpcomm_group_ranks(group, ranks, TPCOMM_MAX_RANKS));
        CHECK_EQ(ranks[info.rank], rank->rank);
        for (int32_t i = 0; i < info.size; i++) want |= 1u << ranks[i];
        CHECK_OK(tpcomm_all_reduce(group, &value, &out, 1, TPCOMM_U32, TPCOMM_SUM, NULL));
        CHECK(out == want);
    }
    tpcomm_t *none = NULL;
    CHECK_STATUS(tpcomm_mesh_group(mesh, "xp", &none), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("tp, cp, pp, dp, ep");
    CHECK_OK(tpcomm_mesh_finalize(mesh));
    CHECK_OK(tpcomm_mesh_destroy(mesh));
}

/* A mesh over some ranks of the world, in another order: its text names ranks as tpcomm_group_ranks does. */
static void over_a_group(rank_t *rank) {
    static const int32_t odd[] = {7, 5, 3, 1};
    tpcomm_mesh_config_t config = {.struct_size = sizeof config, .dp = 2, .tp = 2};
    tpcomm_mesh_t *mesh = NULL;
    tpcomm_t *group = NULL, *tp = NULL;
    int32_t ranks[2];
    char text[256];
    CHECK_OK(tpcomm_group_create(rank->comm, odd, 4, "odd", &group));
    if (group == NULL) return;
    CHECK_OK(tpcomm_mesh_create(group, &config, &mesh));
    CHECK_OK(tpcomm_mesh_text(mesh, text, sizeof text));
    if (strcmp(text, "tp: {7,5} {3,1}\ncp: {7} {5} {3} {1}\npp: {7} {5} {3} {1}\ndp: {7,3} {5,1}\nep: {7,5,3,1}\n") !=
        0)
        FAIL("%s", text);
    CHECK_OK(tpcomm_mesh_group(mesh, "tp", &tp));
    CHECK_OK(tpcomm_group_ranks(tp, ranks, 2));
    CHECK_EQ(ranks[0], rank->rank > 3 ? 7 : 3);
    CHECK_OK(tpcomm_mesh_finalize(mesh));
    CHECK_OK(tpcomm_mesh_destroy(mesh));
    CHECK_OK(tpcomm_finalize(group));
    CHECK_OK(tpcomm_destroy(group));
}

static void wrong_sizes(rank_t *rank) {
    static const struct {
        tpcomm_mesh_config_t config;
        const char *text;
    } wrong[] = {{{.tp = 2}, "dp*pp*cp*tp = 1*1*1*2 = 2 but world = 4"},
                 {{.tp = 2, .pp = 2, .dp = 2}, "= 8 but world = 4"},
                 {{.tp = 3}, "= 3 but world = 4"},
                 {{.tp = -1}, "tp is -1"},
                 {{.tp = 4, .ep = 3}, "ep = 3 does not divide"},
                 {{.dp = 2147483647, .tp = 2}, "dp is 2147483647"},
                 {{0}, "= 1 but world = 4"}};
    tpcomm_mesh_t *mesh = NULL;
    uint64_t start = tpc_clock_ns();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tpcomm_mesh_config_t config = wrong[i].config;
        config.struct_size = sizeof config;
        CHECK_STATUS(tpcomm_mesh_create(rank->comm, &config, &mesh), TPCOMM_ERR_CONFIG);
        CHECK_ERROR_HAS(wrong[i].text);
        CHECK(mesh == NULL);
    }
    /* Wrong, or different, on one rank alone: told on all. */
    tpcomm_mesh_config_t config = {.struct_size = sizeof config, .tp = rank->rank == 2 ? 3 : 4};
    CHECK_STATUS(tpcomm_mesh_create(rank->comm, &config, &mesh), TPCOMM_ERR_CONFIG);
    config = (tpcomm_mesh_config_t){
        .struct_size = sizeof config, .tp = rank->rank == 2 ? 2 : 4, .dp = rank->rank == 2 ? 2 : 1};
    CHECK_STATUS(tpcomm_mesh_create(rank->comm, &config, &mesh), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("rank 2");
    /* Nobody waited for a limit, which is 60 s. */
    CHECK(tpc_clock_ns() - start < 30000000000u);
    CHECK_OK(tpcomm_mesh_destroy(NULL));
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        resources_t before = resources_now();
        ranks_run(RANKS_THREADS, tables[t].world, &config, body, (void *)&tables[t]);
        resources_check_equal(before, "after a mesh");
    }
    ranks_run(RANKS_PROCESSES, 8, &config, body, (void *)&tables[4]);
    ranks_run(RANKS_THREADS, 8, &config, over_a_group, NULL);
    for (int kind = 0; kind < RANKS_KINDS; kind++) ranks_run(kind, 4, &config, wrong_sizes, NULL);
    return 0;
}
