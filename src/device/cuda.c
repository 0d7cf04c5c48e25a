/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hook.h"
#include "device/cuda_driver.h"

/* What the caller had in cudaGetLastError when we came in: ours is taken away again, his is not. */
static _Thread_local cudaError_t callers_error;

void tpc_cuda_forget_error(void) {
    if (callers_error == cudaSuccess) (void)cudaGetLastError();
}

/* Set in a forked child of a process that has started CUDA here. */
static _Atomic bool started, forked;

static void after_fork_in_child(void) {
    if (atomic_load(&started)) atomic_store(&forked, true);
}

static void register_fork(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

#ifdef TPC_HOOKS
static _Atomic uint64_t calls_made;

bool tpc_cuda_fails(void) {
    uint64_t which = tpc_hook_value("cuda_fails", 0);
    if (which == 0) {
        atomic_store(&calls_made, 0);
        return false;
    }
    return atomic_fetch_add(&calls_made, 1) + 1 == which;
}

uint64_t tpc_cuda_calls(void) {
    return atomic_load(&calls_made);
}
#endif

tpcomm_status_t tpc_cuda_error_number(int error, const char *what) {
    if (error == cudaSuccess) return TPCOMM_OK;
    cudaError_t code = (cudaError_t)error;
    tpc_cuda_forget_error();
    return tpc_error(code == cudaErrorMemoryAllocation ? TPCOMM_ERR_NO_MEMORY : TPCOMM_ERR_DEVICE, "%s: %s (%s)", what,
                     cudaGetErrorName(code), cudaGetErrorString(code));
}

/* ------------------------------------------------------------------ contexts */

/* The context that this rank is bound to. A primary one is retained for good: the runtime, which holds it too, does not
 * let go of it before the process ends either. */
static tpcomm_status_t bind(int32_t ordinal, tpc_cuda_facts_t *facts) {
    const tpc_cuda_driver_t *driver;
    CUcontext context = NULL;
    CUdevice device = 0;
    tpcomm_status_t status = tpc_cuda_driver(&driver);
    if (status != TPCOMM_OK) return status;
    if (ordinal < 0) {
        status = tpc_cuda_driver_error(driver, driver->CtxGetCurrent(&context), "cannot tell the current context");
        if (status == TPCOMM_OK && context != NULL)
            status = tpc_cuda_driver_error(driver, driver->CtxGetDevice(&device), "cannot tell the current device");
        if (status == TPCOMM_OK && context == NULL)
            status = tpc_cuda_error(cudaGetDevice(&ordinal), "cannot tell the current device");
        if (status != TPCOMM_OK) return status;
    }
    if (context == NULL) {
        status = tpc_cuda_driver_error(driver, driver->DeviceGet(&device, ordinal), "no such device");
        if (status == TPCOMM_OK)
            status = tpc_cuda_driver_error(driver, driver->DevicePrimaryCtxRetain(&context, device),
                                           "cannot make the device's context");
        if (status != TPCOMM_OK) return status;
    }
    facts->ordinal = device;
    facts->context = (uint64_t)(uintptr_t)context;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_cuda_enter(const tpc_cuda_facts_t *facts, tpc_cuda_scope_t *scope_p) {
    const tpc_cuda_driver_t *driver;
    CUcontext now = NULL, ours = (CUcontext)(uintptr_t)facts->context;
    *scope_p = (tpc_cuda_scope_t){.pushed = false};
    if (atomic_load_explicit(&forked, memory_order_relaxed))
        return tpc_error(TPCOMM_ERR_INVALID_STATE, "this process was forked from one that had started CUDA");
    tpcomm_status_t status = tpc_cuda_driver(&driver);
    if (status != TPCOMM_OK) return status;
    callers_error = cudaPeekAtLastError();
    status = tpc_cuda_driver_error(driver, driver->CtxGetCurrent(&now), "cannot tell the current context");
    if (status != TPCOMM_OK || now == ours) return status;
    status = tpc_cuda_driver_error(driver, driver->CtxPushCurrent(ours), "cannot enter the group's context");
    scope_p->pushed = status == TPCOMM_OK;
    return status;
}

tpcomm_status_t tpc_cuda_enter_relaxed(const tpc_cuda_facts_t *facts, tpc_cuda_scope_t *scope_p) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    tpcomm_status_t status = tpc_cuda_enter(facts, scope_p);
    if (status != TPCOMM_OK) return status;
    status = tpc_cuda_error(cudaThreadExchangeStreamCaptureMode(&mode), "cannot change the capture mode");
    if (status != TPCOMM_OK) {
        tpc_cuda_leave(*scope_p);
        scope_p->pushed = false;
        return status;
    }
    scope_p->relaxed = true;
    scope_p->mode = (int)mode;
    return TPCOMM_OK;
}

bool tpc_cuda_is_primary(const tpc_cuda_facts_t *facts) {
    const tpc_cuda_driver_t *driver;
    CUcontext context = NULL;
    CUdevice device = 0;
    unsigned flags = 0;
    int active = 0; /* a primary context that is not there is not made for the question */
    return tpc_cuda_driver(&driver) == TPCOMM_OK && driver->DeviceGet(&device, facts->ordinal) == CUDA_SUCCESS &&
           driver->DevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0 &&
           driver->DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS && /* for good, as in bind */
           (uint64_t)(uintptr_t)context == facts->context;
}

void tpc_cuda_leave(tpc_cuda_scope_t scope) {
    const tpc_cuda_driver_t *driver;
    CUcontext ours;
    enum cudaStreamCaptureMode mode = (enum cudaStreamCaptureMode)scope.mode;
    if (scope.relaxed) (void)cudaThreadExchangeStreamCaptureMode(&mode);
    if (scope.pushed && tpc_cuda_driver(&driver) == TPCOMM_OK) (void)driver->CtxPopCurrent(&ours);
}

/* ------------------------------------------------------------------ facts */

static void unusable(tpc_cuda_facts_t *facts, const char *what, cudaError_t error) {
    snprintf(facts->reason, sizeof facts->reason, "%s: %s (%s)", what, cudaGetErrorName(error),
             cudaGetErrorString(error));
    tpc_cuda_forget_error();
}

void tpc_cuda_probe(int32_t ordinal, tpc_cuda_facts_t *facts_p) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct cudaDeviceProp properties;
    int count = 0;
    memset(facts_p, 0, sizeof *facts_p);
    if (atomic_load(&forked)) {
        snprintf(facts_p->reason, sizeof facts_p->reason, "this process was forked from one that had started CUDA");
        return;
    }
    callers_error = cudaPeekAtLastError();
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        unusable(facts_p, "no CUDA device", error);
        return;
    }
    pthread_once(&once, register_fork);
    atomic_store(&started, true);
    if (ordinal >= count) {
        snprintf(facts_p->reason, sizeof facts_p->reason, "device %d was asked for, but this process sees %d", ordinal,
                 count);
        return;
    }
    tpc_cuda_scope_t scope = {.pushed = false};
    tpcomm_status_t status = bind(ordinal, facts_p);
    if (status == TPCOMM_OK) status = tpc_cuda_enter(facts_p, &scope);
    if (status != TPCOMM_OK) {
        snprintf(facts_p->reason, sizeof facts_p->reason, "%.250s", tpcomm_last_error());
        return;
    }
    error = cudaFree(NULL); /* the runtime takes the context up */
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, facts_p->ordinal);
    if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(facts_p->bus_id, sizeof facts_p->bus_id, facts_p->ordinal);
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

/* Its ordinal here, whatever it is in its own process; -1: not visible. */
static int ordinal_of(const tpc_cuda_facts_t *theirs) {
    struct cudaDeviceProp properties;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    for (int d = 0; d < count; d++)
        if (cudaGetDeviceProperties(&properties, d) == cudaSuccess &&
            memcmp(properties.uuid.bytes, theirs->uuid, sizeof theirs->uuid) == 0)
            return d;
    tpc_cuda_forget_error();
    return -1;
}

static int32_t peer_attribute(const tpc_cuda_facts_t *mine, const tpc_cuda_facts_t *theirs,
                              enum cudaDeviceP2PAttr attribute) {
    int value = 0;
    callers_error = cudaPeekAtLastError();
    int peer = ordinal_of(theirs);
    if (peer < 0) return -1;
    if (cudaDeviceGetP2PAttribute(&value, attribute, mine->ordinal, peer) == cudaSuccess) return value != 0;
    tpc_cuda_forget_error();
    return 0;
}

int32_t tpc_cuda_peer_access(const tpc_cuda_facts_t *mine, const tpc_cuda_facts_t *theirs) {
    return peer_attribute(mine, theirs, cudaDevP2PAttrAccessSupported);
}

int32_t tpc_cuda_peer_atomics(const tpc_cuda_facts_t *mine, const tpc_cuda_facts_t *theirs) {
    return peer_attribute(mine, theirs, cudaDevP2PAttrNativeAtomicSupported);
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
