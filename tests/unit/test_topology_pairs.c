/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what is made of NVML's word, with a library of our own in its place: switch systems, links from GPU to GPU,
 * bridges, PCIe alone, forbidden pairs, links that are down, cards in another order than CUDA's, an older library, one
 * that lacks what is needed, one that refuses, parts of a GPU, and no library at all. The class is that of the worst
 * view, and the same whoever asks.
 */
#include "topology/pairs.h"

#include "unit/bootstrap_job.h"

enum { GPUS = 4 };

static tpc_cuda_facts_t facts[GPUS];
static tpc_gpu_row_t rows[GPUS];
static const char *library_of_members;

static void make_facts(void) {
    memset(facts, 0, sizeof facts);
    for (int r = 0; r < GPUS; r++) {
        facts[r].usable = 1;
        memset(facts[r].uuid, 0x10 + r, sizeof facts[r].uuid);
        snprintf(facts[r].bus_id, sizeof facts[r].bus_id, "0000:%02x:00.0", 0x10u + (unsigned)r);
    }
}

static void look(const char *library, const char *wiring) {
    CHECK_EQ(setenv("TPCOMM_TEST_NVML", wiring, 1), 0);
    for (int32_t r = 0; r < GPUS; r++) tpc_nvml_look(library, facts, r, GPUS, &rows[r]);
}

static void expect_pair(int32_t a, int32_t b, const char *want) {
    char text[TPC_PAIR_TEXT_BYTES];
    tpc_pair_t ab = tpc_pair_of(facts, rows, a, b), ba = tpc_pair_of(facts, rows, b, a);
    CHECK(memcmp(&ab, &ba, sizeof ab) == 0);
    if (strcmp(tpc_pair_text(&ab, text), want) != 0) FAIL("%d and %d: '%s', want '%s'", a, b, text, want);
}

static void expect_class(tpc_topology_t want, int32_t n) {
    tpc_topology_t got = tpc_topology_of_pairs(facts, rows, n);
    if (got != want) FAIL("%d ranks: %s, want %s", n, tpc_topology_name(got), tpc_topology_name(want));
}

static void expect_source(int32_t r, bool by_nvml, const char *piece) {
    if (rows[r].by_nvml != by_nvml || strstr(rows[r].source, piece) == NULL)
        FAIL("rank %d: by_nvml %d, '%s' is not in: %s", r, rows[r].by_nvml, piece, rows[r].source);
}

static void wirings(const char *library, bool old) {
    make_facts();
    look(library, "switch");
    expect_class(TPC_TOPOLOGY_NVLINK, GPUS);
    expect_pair(0, 3, "nvlink x18 (switch)");
    expect_pair(2, 2, "self");
    expect_source(0, true, old ? "NVML of unknown version" : "NVML 13.580.65");
    expect_source(0, true, "fake_nvml");

    look(library, "half"); /* every other link is down */
    expect_pair(1, 2, "nvlink x9 (switch)");

    look(library, "uneven"); /* the fewer of both; by index, 0 would have what 3 has */
    expect_pair(0, 1, "nvlink x4 (switch)");
    expect_pair(2, 3, "nvlink x6 (switch)");
    CHECK_EQ(rows[0].switched, 4);
    CHECK_EQ(rows[3].switched, 7);

    look(library, "direct");
    expect_class(TPC_TOPOLOGY_NVLINK, GPUS);
    expect_pair(0, 1, "nvlink x4");
    expect_pair(0, 3, "nvlink x2");

    look(library, "bridges");
    expect_class(TPC_TOPOLOGY_MIXED, GPUS);
    expect_class(TPC_TOPOLOGY_NVLINK, 2);
    expect_pair(2, 3, "nvlink x4");
    expect_pair(1, 2, old ? "pcie (same board)" : "pcie (across sockets)");

    look(library, "pcie");
    expect_class(TPC_TOPOLOGY_PCIE_P2P, GPUS);
    expect_pair(0, 1, old ? "pcie (same board)" : "pcie (one PCIe switch)");
}

static void odd_ones(const char *library) {
    make_facts();
    look(library, "forbidden");
    expect_class(TPC_TOPOLOGY_MIXED, GPUS);
    expect_class(TPC_TOPOLOGY_PCIE_P2P, 2);
    expect_pair(0, 3, "no peer access");
    expect_pair(1, 0, "pcie (one PCIe switch)");

    look(library, "mig"); /* UUIDs that NVML does not know: by bus id */
    expect_source(1, true, "NVML 13");
    expect_class(TPC_TOPOLOGY_PCIE_P2P, GPUS);

    look(library, "lost"); /* one rank cannot say: the others' word on it */
    expect_source(2, false, "cannot ask for NVLinks: NVML error 15");
    expect_source(1, true, "NVML 13");
    look(library, "permission");
    expect_source(0, false, "NVML does not start: NVML error 4 (Insufficient Permissions)");
    expect_class(TPC_TOPOLOGY_PCIE_P2P, GPUS);
    look(library, "mismatch");
    expect_source(3, false, "NVML error 18 (Driver/library version mismatch)");

    /* Two ranks on one GPU and two on others; two parts of one GPU, which cannot reach each other. */
    memcpy(facts[1].uuid, facts[0].uuid, sizeof facts[0].uuid);
    memcpy(facts[1].bus_id, facts[0].bus_id, sizeof facts[0].bus_id);
    look(library, "switch");
    expect_pair(0, 1, "same gpu");
    expect_pair(1, 2, "nvlink x18 (switch)");
    expect_class(TPC_TOPOLOGY_MIXED, GPUS);
    expect_class(TPC_TOPOLOGY_SAME_GPU, 2);
    memset(facts[1].uuid, 0x77, sizeof facts[1].uuid);
    look(library, "pcie");
    expect_pair(0, 1, "no peer access");
    expect_class(TPC_TOPOLOGY_MIXED, 2);

    /* A card that this NVML has never heard of. */
    make_facts();
    snprintf(facts[3].bus_id, sizeof facts[3].bus_id, "0000:99:00.0");
    memset(facts[3].uuid, 0x99, sizeof facts[3].uuid);
    look(library, "switch");
    expect_source(3, false, "NVML does not know this rank's GPU: NVML error 6");
}

/* Without NVML there is CUDA's word: access, and native atomics, which only NVLink has. */
static void without_nvml(const char *bare) {
    make_facts();
    look("/nonexistent/libnvidia-ml.so", "switch");
    expect_source(0, false, "NVML cannot be loaded: /nonexistent/libnvidia-ml.so");
    expect_class(TPC_TOPOLOGY_PCIE_P2P, GPUS);
    look(bare, "switch");
    expect_source(0, false, "has no nvmlDeviceGetNvLinkState");
    for (int a = 0; a < GPUS; a++)
        for (int b = 0; b < GPUS; b++) rows[a].to[b] = (tpc_gpu_sight_t){.access = 1, .atomics = 1};
    expect_class(TPC_TOPOLOGY_NVLINK, GPUS);
    expect_pair(0, 1, "nvlink");
    rows[2].to[1].atomics = 0; /* one view is enough */
    expect_pair(1, 2, "pcie (same board)");
    rows[3].to[0].access = 0;
    expect_pair(0, 3, "no peer access");
    expect_class(TPC_TOPOLOGY_MIXED, GPUS);
}

/* Two hosts of two ranks each, whose GPUs have the same bus ids: what a rank finds under those of the other host is its
 * own host's card. */
static void as_member(int32_t index, outcome_t *outcome) {
    static const int32_t ranks[GPUS] = {0, 1, 2, 3};
    tpc_bootstrap_t *bootstrap;
    tpc_topology_t topology;
    tpc_pair_t pairs[GPUS];
    char text[TPC_PAIR_TEXT_BYTES];
    (void)outcome;
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "%d", GPUS);
    job_set("TPCOMM_HOST_ID", "host%d", index / 2);
    job_set("TPCOMM_TEST_NVML", "switch");
    CHECK_OK(job_meet_env(20000, &bootstrap));
    tpc_team_t team = {.channel = 3, .ranks = ranks, .n = GPUS, .me = index};
    tpc_deadline_t deadline = tpc_deadline_in(20000, NULL, NULL);
    make_facts();
    for (int r = 2; r < GPUS; r++) {
        memset(facts[r].uuid, 0xa0 + r, sizeof facts[r].uuid);
        memcpy(facts[r].bus_id, facts[r - 2].bus_id, sizeof facts[r].bus_id);
    }
    CHECK_OK(tpc_topology_of_gpu_team(bootstrap, &team, facts, library_of_members, &deadline, &topology, pairs));
    CHECK_EQ(topology, TPC_TOPOLOGY_MIXED);
    for (int32_t r = 0; r < GPUS; r++) {
        const char *want = r == index ? "self" : r / 2 == index / 2 ? "nvlink x18 (switch)" : "no peer access";
        if (strcmp(tpc_pair_text(&pairs[r], text), want) != 0) FAIL("%d and %d: '%s', want '%s'", index, r, text, want);
    }
    tpc_bootstrap_free(bootstrap);
}

static void bus_ids(void) {
    static const char *const good[] = {"0000:0f:00.0", "00000000:0F:00.0", "0:f:0.0"};
    static const char *const bad[] = {"",
                                      "0000:0f:00",
                                      "0000:0f:00.8",
                                      "0000:0f:00.0 ",
                                      "0000:0g:00.0",
                                      "0000-0f:00.0",
                                      "000000000:0f:00.0",
                                      ":0f:00.0",
                                      "0000:0f:000.0",
                                      "0000:0f:00.00"};
    uint32_t place[3];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(tpc_bus_id_parse(good[i], place));
        CHECK(place[0] == 0 && place[1] == 15 && place[2] == 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (tpc_bus_id_parse(bad[i], place)) FAIL("'%s' passed for a bus id", bad[i]);
}

int main(int argc, char **argv) {
    if (argc != 4) FAIL("usage: %s WHOLE OLD BARE", argv[0]);
    bus_ids();
    wirings(argv[1], false);
    wirings(argv[2], true);
    odd_ones(argv[1]);
    without_nvml(argv[3]);
    library_of_members = argv[1];
    job_clean_environment();
    job_set_unique_id("topology");
    job_run(GPUS, as_member);
    return 0;
}
