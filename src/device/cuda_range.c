/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What CUDA knows of memory and streams. The questions are asked in relaxed capture mode: whatever the caller is just
 * capturing, no question of ours can end it.
 */
#include <cuda_runtime_api.h>

#include "base/error.h"
#include "device/cuda_driver.h"
#include "device/range.h"

typedef struct {
    const tpc_cuda_driver_t *driver;
    const tpc_cuda_facts_t *facts;
} asked_t;

/* Of memory made by cuMemCreate, the driver tells who may use it. */
static bool has_access(const asked_t *asked, CUdeviceptr address) {
    unsigned long long flags = 0;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = asked->facts->ordinal};
    return asked->driver->MemGetAccess != NULL &&
           asked->driver->MemGetAccess(&flags, &location, address) == CUDA_SUCCESS && flags != 0;
}

static tpcomm_status_t look(void *arg, uint64_t address, tpc_memory_t *memory_p) {
    const asked_t *asked = arg;
    CUdeviceptr where = (CUdeviceptr)address, start = 0, device_address = 0;
    unsigned type = 0, managed = 0, legacy = 0;
    int ordinal = -1;
    size_t bytes = 0;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void *values[] = {&type, &ordinal, &managed, &start, &bytes, &legacy, &device_address};
    *memory_p = (tpc_memory_t){.kind = TPC_MEMORY_UNKNOWN};
    tpcomm_status_t status = tpc_cuda_driver_error(
        asked->driver, asked->driver->PointerGetAttributes(sizeof names / sizeof *names, names, values, where),
        "cannot tell what memory a pointer is");
    if (status != TPCOMM_OK || type == 0) return status; /* an address that CUDA does not know has zeros */
    *memory_p = (tpc_memory_t){.ordinal = ordinal, .whole = legacy != 0, .start = start, .bytes = bytes};
    if (managed != 0)
        memory_p->kind = TPC_MEMORY_MANAGED;
    else if (type == CU_MEMORYTYPE_HOST)
        memory_p->kind = TPC_MEMORY_HOST;
    else
        memory_p->kind = TPC_MEMORY_DEVICE;
    memory_p->reachable = memory_p->kind == TPC_MEMORY_HOST ? device_address != 0
                          : memory_p->kind == TPC_MEMORY_DEVICE && ordinal != asked->facts->ordinal
                              ? has_access(asked, where)
                              : true;
    return TPCOMM_OK;
}

/* Where the device reads the host's page tables, plain memory will do. */
static bool reads_pages(const asked_t *asked) {
    CUdevice device = 0;
    int yes = 0;
    return asked->driver->DeviceGet(&device, asked->facts->ordinal) == CUDA_SUCCESS &&
           asked->driver->DeviceGetAttribute(&yes, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device) ==
               CUDA_SUCCESS &&
           yes != 0;
}

static tpcomm_status_t check_range(const asked_t *asked, const tpc_range_t *range) {
    tpc_memory_t memory;
    tpcomm_status_t status = look((void *)(uintptr_t)asked, (uintptr_t)range->base, &memory);
    if (status != TPCOMM_OK) return status;
    if (memory.kind == TPC_MEMORY_UNKNOWN && reads_pages(asked)) return tpc_cpu_check_range(range);
    return tpc_range_judge(range, asked->facts->ordinal, asked->facts->bus_id, look, (void *)(uintptr_t)asked);
}

static tpcomm_status_t check_stream(const asked_t *asked, tpcomm_stream_t stream) {
    const tpc_cuda_driver_t *driver = asked->driver;
    CUcontext theirs = NULL, ours = (CUcontext)(uintptr_t)asked->facts->context, popped = NULL;
    CUdevice device = -1;
    tpcomm_status_t status = tpc_cuda_driver_error(driver, driver->StreamGetCtx((CUstream)stream, &theirs),
                                                   "cannot tell whose the stream is");
    if (status != TPCOMM_OK || theirs == ours) return status;
    if (driver->CtxPushCurrent(theirs) == CUDA_SUCCESS) {
        if (driver->CtxGetDevice(&device) != CUDA_SUCCESS) device = -1;
        (void)driver->CtxPopCurrent(&popped);
    }
    return tpc_error(
        TPCOMM_ERR_INVALID_ARG,
        "stream is %p, of CUDA context %p on device %d; this rank is bound to context %p on device %d (%s)",
        (void *)stream, (void *)theirs, device, (void *)ours, asked->facts->ordinal, asked->facts->bus_id);
}

/* ------------------------------------------------------------------ in our context, whatever is being captured */

typedef struct {
    asked_t asked;
    tpc_cuda_scope_t scope;
    enum cudaStreamCaptureMode mode;
} question_t;

static tpcomm_status_t begin(const tpc_cuda_facts_t *facts, question_t *question_p) {
    *question_p = (question_t){.asked.facts = facts, .mode = cudaStreamCaptureModeRelaxed};
    tpcomm_status_t status = tpc_cuda_driver(&question_p->asked.driver);
    if (status == TPCOMM_OK) status = tpc_cuda_enter(facts, &question_p->scope);
    if (status != TPCOMM_OK) return status;
    status = tpc_cuda_error(cudaThreadExchangeStreamCaptureMode(&question_p->mode), "cannot change the capture mode");
    if (status != TPCOMM_OK) tpc_cuda_leave(question_p->scope);
    return status;
}

static void end(question_t *question) {
    (void)cudaThreadExchangeStreamCaptureMode(&question->mode);
    tpc_cuda_leave(question->scope);
}

tpcomm_status_t tpc_cuda_check_range(const tpc_cuda_facts_t *facts, const tpc_range_t *range) {
    question_t question;
    if (range->bytes == 0) return TPCOMM_OK;
    tpcomm_status_t status = begin(facts, &question);
    if (status != TPCOMM_OK) return status;
    status = check_range(&question.asked, range);
    end(&question);
    return status;
}

tpcomm_status_t tpc_cuda_check_stream(const tpc_cuda_facts_t *facts, tpcomm_stream_t stream) {
    question_t question;
    cudaStream_t given = (cudaStream_t)stream;
    if (given == NULL || given == cudaStreamLegacy || given == cudaStreamPerThread) return TPCOMM_OK; /* of any */
    tpcomm_status_t status = begin(facts, &question);
    if (status != TPCOMM_OK) return status;
    status = check_stream(&question.asked, stream);
    end(&question);
    return status;
}
