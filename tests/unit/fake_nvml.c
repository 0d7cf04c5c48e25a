/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A management library of our own: four GPUs, wired as TPCOMM_TEST_NVML says. GPU i has UUID bytes 0x10 + i, bus id
 * 0000:(0x10 + i):00.0, and its handle stands at place 3 - i: whoever asks by index gets the wrong card, and is ended.
 * Built in three forms: whole; OLD, without what older drivers lack; BARE, without what we need.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { GPUS = 4, SWITCH_BUS = 0xc0 };

typedef struct nvml_device {
    int gpu;
} device_t;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
} pci_t;

static device_t devices[GPUS] = {{3}, {2}, {1}, {0}};
static int running;

static int is(const char *wiring) {
    const char *now = getenv("TPCOMM_TEST_NVML");
    return now != NULL && strcmp(now, wiring) == 0;
}

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int error);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, device_t **device);
EXPORT int nvmlDeviceGetNvLinkState(device_t *device, unsigned link, unsigned *active);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t *device, unsigned link, pci_t *pci);
EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned bytes);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, device_t **device);
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(device_t *device, unsigned link, int *type);
EXPORT int nvmlDeviceGetTopologyCommonAncestor(device_t *a, device_t *b, int *level);
EXPORT int nvmlDeviceGetP2PStatus(device_t *a, device_t *b, int index, int *status);

EXPORT int nvmlInit_v2(void) {
    if (is("permission")) return 4;
    if (is("mismatch")) return 18;
    running++;
    return 0;
}

EXPORT int nvmlShutdown(void) {
    if (running-- <= 0) abort();
    return 0;
}

EXPORT const char *nvmlErrorString(int error) {
    return error == 4 ? "Insufficient Permissions" : error == 18 ? "Driver/library version mismatch" : "Some error";
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) {
    (void)index, (void)device;
    abort();
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, device_t **device) {
    unsigned domain, bus, place;
    if (running <= 0) abort();
    if (sscanf(bus_id, "%x:%x:%x.0", &domain, &bus, &place) != 3) return 2;
    if (domain != 0 || place != 0 || bus < 0x10 || bus >= 0x10 + GPUS) return 6;
    *device = &devices[GPUS - 1 - (bus - 0x10)];
    return 0;
}

/* How many links a pair has, and GPU i into switches. */
static int wired(int a, int b) {
    if (is("direct")) return 2 + (a + b == 1) * 2; /* 0 and 1 have four */
    if (is("bridges")) return a / 2 == b / 2 ? 4 : 0;
    return 0;
}

static int switched(int gpu) {
    if (is("switch") || is("half")) return 18;
    if (is("uneven")) return 4 + gpu;
    return 0;
}

/* The other end of a link: a GPU, SWITCH_BUS, or -1 past the last. */
static int end_of(int gpu, unsigned link) {
    int left = (int)link;
    for (int other = 0; other < GPUS; other++) {
        if (other == gpu) continue;
        if (left < wired(gpu, other)) return 0x10 + other;
        left -= wired(gpu, other);
    }
    return left < switched(gpu) ? SWITCH_BUS : -1;
}

#ifndef BARE
EXPORT int nvmlDeviceGetNvLinkState(device_t *device, unsigned link, unsigned *active) {
    if (is("pcie") || is("forbidden")) return 3;
    if (is("lost") && device->gpu == 2) return 15;
    if (end_of(device->gpu, link) < 0) return 2;
    *active = !is("half") || link % 2 == 0;
    return 0;
}
#endif

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t *device, unsigned link, pci_t *pci) {
    int end = end_of(device->gpu, link);
    if (end < 0) return 2;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", (unsigned)end);
    return 0;
}

#ifndef OLD
EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned bytes) {
    snprintf(version, bytes, "13.580.65");
    return 0;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, device_t **device) {
    unsigned byte;
    if (is("mig") || sscanf(uuid, "GPU-%2x", &byte) != 1 || byte < 0x10 || byte >= 0x10 + GPUS) return 6;
    *device = &devices[GPUS - 1 - (byte - 0x10)];
    return 0;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(device_t *device, unsigned link, int *type) {
    int end = end_of(device->gpu, link);
    if (end < 0) return 2;
    *type = end == SWITCH_BUS ? 2 : 0;
    return 0;
}

EXPORT int nvmlDeviceGetTopologyCommonAncestor(device_t *a, device_t *b, int *level) {
    *level = a->gpu / 2 == b->gpu / 2 ? 10 : 50;
    return 0;
}

EXPORT int nvmlDeviceGetP2PStatus(device_t *a, device_t *b, int index, int *status) {
    (void)index;
    *status = is("forbidden") && a->gpu + b->gpu == 3 ? 2 : 0; /* 0 and 3, 1 and 2 */
    return 0;
}
#endif
