/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/nvml.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/shlib.h"

/* Names, numbers and layouts of NVML's public interface (nvml.h of the CUDA toolkit). */
typedef struct nvml_device *nvml_device_t;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
} nvml_pci_t;

enum { NVML_OK = 0, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3 };
enum { NVML_REMOTE_GPU = 0, NVML_REMOTE_SWITCH = 2 };
enum { NVML_P2P_READ = 0, NVML_P2P_WRITE = 1 };

/* More than any GPU has; NVML ends the loop sooner. */
#define LINKS_MAX 64u

typedef struct {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int);
    int (*system_version)(char *, unsigned);
    int (*by_uuid)(const char *, nvml_device_t *);
    int (*by_bus_id)(const char *, nvml_device_t *);
    int (*link_state)(nvml_device_t, unsigned, unsigned *);
    int (*link_remote)(nvml_device_t, unsigned, nvml_pci_t *);
    int (*link_remote_type)(nvml_device_t, unsigned, int *);
    int (*common_ancestor)(nvml_device_t, nvml_device_t, int *);
    int (*p2p_status)(nvml_device_t, nvml_device_t, int, int *);
} nvml_t;

#define SYMBOL(name, field, required)                                                                                  \
    { name, offsetof(nvml_t, field), required }
static const tpc_shlib_symbol_t symbols[] = {
    SYMBOL("nvmlInit_v2", init, true),
    SYMBOL("nvmlShutdown", shutdown, true),
    SYMBOL("nvmlErrorString", error_string, true),
    SYMBOL("nvmlSystemGetNVMLVersion", system_version, false),
    SYMBOL("nvmlDeviceGetHandleByUUID", by_uuid, false),
    SYMBOL("nvmlDeviceGetHandleByPciBusId_v2", by_bus_id, true),
    SYMBOL("nvmlDeviceGetNvLinkState", link_state, true),
    SYMBOL("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_remote, true),
    SYMBOL("nvmlDeviceGetNvLinkRemoteDeviceType", link_remote_type, false), /* since driver 470 */
    SYMBOL("nvmlDeviceGetTopologyCommonAncestor", common_ancestor, false),
    SYMBOL("nvmlDeviceGetP2PStatus", p2p_status, false),
};
static const char *const names[] = {"libnvidia-ml.so.1", "libnvidia-ml.so", NULL};
static const tpc_shlib_desc_t library = {.what = "NVML",
                                         .names = names,
                                         .stays = true,
                                         .symbols = symbols,
                                         .symbol_count = sizeof symbols / sizeof symbols[0]};

bool tpc_bus_id_parse(const char *text, uint32_t place_p[3]) {
    static const char ends[3] = {':', ':', '.'};
    static const int digits[3] = {8, 2, 2};
    uint32_t place[3];
    for (int part = 0; part < 3; part++) {
        uint32_t value = 0;
        int used = 0;
        for (; used < digits[part]; used++, text++) {
            char c = *text;
            int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
            if (digit < 0) break;
            value = value * 16 + (uint32_t)digit;
        }
        if (used == 0 || *text++ != ends[part]) return false;
        place[part] = value;
    }
    if (*text < '0' || *text > '7' || text[1] != '\0') return false;
    memcpy(place_p, place, sizeof place);
    return true;
}

/* ------------------------------------------------------------------ one question */

typedef struct {
    nvml_t nvml;
    const tpc_cuda_facts_t *facts;
    int32_t me, n;
    nvml_device_t device; /* the rank's own */
    tpc_gpu_row_t row;
} look_t;

static bool refused(look_t *look, int error, const char *what) {
    if (error == NVML_OK) return false;
    const char *text = look->nvml.error_string(error);
    snprintf(look->row.source, sizeof look->row.source, "%s: NVML error %d (%.80s)", what, error,
             text != NULL ? text : "no text");
    return true;
}

/* By UUID; a part of a GPU (MIG) has one of its own and is found by the bus id that it shares with the whole. */
static int find(const nvml_t *nvml, const tpc_cuda_facts_t *facts, nvml_device_t *device_p) {
    char uuid[48] = "GPU-";
    for (int i = 0; i < 16; i++)
        snprintf(uuid + strlen(uuid), 4, "%02x%s", facts->uuid[i], i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
    if (nvml->by_uuid != NULL && nvml->by_uuid(uuid, device_p) == NVML_OK) return NVML_OK;
    return nvml->by_bus_id(facts->bus_id, device_p);
}

/* Whose GPU is at that place; -1: nobody's of the team. */
static int32_t rank_at(const look_t *look, const char *bus_id, int32_t after) {
    uint32_t place[3], own[3];
    if (!tpc_bus_id_parse(bus_id, place)) return -1;
    for (int32_t r = after + 1; r < look->n; r++)
        if (tpc_bus_id_parse(look->facts[r].bus_id, own) && memcmp(own, place, sizeof own) == 0) return r;
    return -1;
}

/* Where an active link ends: counted for every rank on that GPU, or as one into a switch. */
static void count_link(look_t *look, unsigned link) {
    nvml_pci_t remote;
    nvml_device_t other;
    int type = -1;
    memset(&remote, 0, sizeof remote);
    if (look->nvml.link_remote_type == NULL || look->nvml.link_remote_type(look->device, link, &type) != NVML_OK)
        type = -1;
    bool placed = look->nvml.link_remote(look->device, link, &remote) == NVML_OK;
    remote.bus_id[sizeof remote.bus_id - 1] = '\0';
    if (type == NVML_REMOTE_SWITCH) {
        look->row.switched++;
        return;
    }
    if (!placed) return;
    int32_t r = rank_at(look, remote.bus_id, -1);
    /* Without a type: what is no GPU to NVML is a switch. */
    if (r < 0 && type < 0 && look->nvml.by_bus_id(remote.bus_id, &other) != NVML_OK) look->row.switched++;
    for (; r >= 0; r = rank_at(look, remote.bus_id, r)) look->row.to[r].direct++;
}

static bool count_links(look_t *look) {
    for (unsigned link = 0; link < LINKS_MAX; link++) {
        unsigned active = 0;
        int error = look->nvml.link_state(look->device, link, &active);
        if (error == NVML_INVALID_ARGUMENT || error == NVML_NOT_SUPPORTED) return true; /* no more of them */
        if (refused(look, error, "cannot ask for NVLinks")) return false;
        if (active == 1) count_link(look, link);
    }
    return true;
}

static void look_at_peer(look_t *look, int32_t r) {
    tpc_gpu_sight_t *sight = &look->row.to[r];
    nvml_device_t peer;
    int level = 0, read = -1, write = -1;
    if (find(&look->nvml, &look->facts[r], &peer) != NVML_OK || peer == look->device) return;
    if (look->nvml.common_ancestor != NULL && look->nvml.common_ancestor(look->device, peer, &level) == NVML_OK &&
        level > 0)
        sight->level = (uint8_t)(level / 10);
    if (look->nvml.p2p_status != NULL && look->nvml.p2p_status(look->device, peer, NVML_P2P_READ, &read) == NVML_OK &&
        look->nvml.p2p_status(look->device, peer, NVML_P2P_WRITE, &write) == NVML_OK)
        sight->access = read == 0 && write == 0;
}

static void ask(look_t *look, const char *path) {
    char version[64] = "of unknown version";
    if (refused(look, find(&look->nvml, &look->facts[look->me], &look->device), "NVML does not know this rank's GPU"))
        return;
    if (!count_links(look)) {
        memset(look->row.to, 0, sizeof look->row.to);
        look->row.switched = 0;
        for (int32_t r = 0; r < TPCOMM_MAX_RANKS; r++) look->row.to[r].access = -1;
        return;
    }
    for (int32_t r = 0; r < look->n; r++)
        if (r != look->me) look_at_peer(look, r);
    if (look->nvml.system_version != NULL) (void)look->nvml.system_version(version, sizeof version);
    version[sizeof version - 1] = '\0';
    snprintf(look->row.source, sizeof look->row.source, "NVML %s (%.110s)", version, path);
    look->row.by_nvml = 1;
}

void tpc_nvml_look(const char *path, const tpc_cuda_facts_t *facts, int32_t me, int32_t n, tpc_gpu_row_t *row_p) {
    look_t look = {.facts = facts, .me = me, .n = n};
    tpc_shlib_t lib;
    for (int32_t r = 0; r < TPCOMM_MAX_RANKS; r++) look.row.to[r].access = -1;
    if (tpc_shlib_open(&library, path, &look.nvml, &lib) != TPCOMM_OK) {
        snprintf(look.row.source, sizeof look.row.source, "%.180s", tpcomm_last_error());
    } else {
        if (!refused(&look, look.nvml.init(), "NVML does not start")) {
            ask(&look, lib.path);
            (void)look.nvml.shutdown();
        }
        tpc_shlib_close(&lib);
    }
    *row_p = look.row;
}
