/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

tpcomm_status_t tpc_cuda_error(int error, const char *what) {
    if (error == cudaSuccess) return TPCOMM_OK;
    cudaError_t code = (cudaError_t)error;
    (void)cudaGetLastError(); /* not left for the caller to find */
    return tpc_error(code == cudaErrorMemoryAllocation ? TPCOMM_ERR_NO_MEMORY : TPCOMM_ERR_DEVICE, "%s: %s (%s)", what,
                     cudaGetErrorName(code), cudaGetErrorString(code));
}

static void unusable(tpc_cuda_facts_t *facts, const char *what, cudaError_t error) {
    facts->usable = 0;
    snprintf(facts->reason, sizeof facts->reason, "%s: %s (%s)", what, cudaGetErrorName(error),
             cudaGetErrorString(error));
    (void)cudaGetLastError();
}

void tpc_cuda_probe(int32_t ordinal, tpc_cuda_facts_t *facts_p) {
    struct cudaDeviceProp properties;
    int count = 0, device = ordinal;
    memset(facts_p, 0, sizeof *facts_p);
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        unusable(facts_p, "no CUDA device", error);
        return;
    }
    if (ordinal >= count) {
        snprintf(facts_p->reason, sizeof facts_p->reason, "device %d was asked for, but this process sees %d", ordinal,
                 count);
        return;
    }
    if (ordinal < 0 && (error = cudaGetDevice(&device)) != cudaSuccess) {
        unusable(facts_p, "no current device", error);
        return;
    }
    tpc_cuda_scope_t scope;
    if (tpc_cuda_enter(device, &scope) != TPCOMM_OK) {
        snprintf(facts_p->reason, sizeof facts_p->reason, "%.200s", tpcomm_last_error());
        return;
    }
    facts_p->ordinal = device;
    error = cudaFree(NULL); /* makes the context */
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, device);
    if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(facts_p->bus_id, sizeof facts_p->bus_id, device);
    tpc_cuda_leave(scope);
    if (error != cudaSuccess) {
        unusable(facts_p, "device is there but cannot be used", error);
        return;
    }
    facts_p->usable = 1;
    facts_p->arch = properties.major * 10 + properties.minor;
    facts_p->sms = properties.multiProcessorCount;
    memcpy(facts_p->uuid, properties.uuid.bytes, sizeof facts_p->uuid);
    snprintf(facts_p->name, sizeof facts_p->name, "%.63s", properties.name);
}

tpcomm_status_t tpc_cuda_enter(int32_t ordinal, tpc_cuda_scope_t *scope_p) {
    int now = -1;
    scope_p->before = -1;
    tpcomm_status_t status = tpc_cuda_error(cudaGetDevice(&now), "cannot tell the current device");
    if (status != TPCOMM_OK || now == ordinal) return status;
    status = tpc_cuda_error(cudaSetDevice(ordinal), "cannot switch to the group's device");
    if (status == TPCOMM_OK) scope_p->before = now;
    return status;
}

void tpc_cuda_leave(tpc_cuda_scope_t scope) {
    if (scope.before >= 0) (void)cudaSetDevice(scope.before);
}

/* ------------------------------------------------------------------ pinned host memory */

typedef struct pin {
    void *base;
    int users;
    struct pin *next;
} pin_t;

static pthread_mutex_t pin_lock = PTHREAD_MUTEX_INITIALIZER;
static pin_t *pins;

tpcomm_status_t tpc_cuda_pin(void *base, size_t bytes, void **device_p) {
    tpcomm_status_t status = TPCOMM_OK;
    pthread_mutex_lock(&pin_lock);
    pin_t *pin = pins;
    while (pin != NULL && pin->base != base) pin = pin->next;
    if (pin == NULL) {
        pin = calloc(1, sizeof *pin);
        if (pin == NULL)
            status = tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
        else
            status = tpc_cuda_error(cudaHostRegister(base, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
                                    "cannot pin the workspace's header");
        if (status == TPCOMM_OK) {
            pin->base = base;
            pin->next = pins;
            pins = pin;
        } else {
            free(pin);
            pin = NULL;
        }
    }
    if (pin != NULL) pin->users++;
    pthread_mutex_unlock(&pin_lock);
    if (status != TPCOMM_OK) return status;
    status = tpc_cuda_error(cudaHostGetDevicePointer(device_p, base, 0), "the pinned header has no device address");
    if (status != TPCOMM_OK) tpc_cuda_unpin(base);
    return status;
}

void tpc_cuda_unpin(void *base) {
    pthread_mutex_lock(&pin_lock);
    for (pin_t **link = &pins; *link != NULL; link = &(*link)->next) {
        pin_t *pin = *link;
        if (pin->base != base) continue;
        if (--pin->users == 0) {
            *link = pin->next;
            (void)cudaHostUnregister(base);
            free(pin);
        }
        break;
    }
    pthread_mutex_unlock(&pin_lock);
}
