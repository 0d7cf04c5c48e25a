/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that calls take any device memory of the caller's: plain cudaMalloc, the middle of a block, a stream-ordered
 * pool, virtual memory (cuMemCreate and cuMemMap, as expandable segments and memory savers have it), managed and pinned
 * host memory; ranks as threads and as processes, each rank with another kind. Nothing is registered or exported.
 * TPCOMM_CHECK=sync refuses none of it.
 */
#include "device/cuda_driver.h"
#include "gpu/gpu_ranks.h"

enum { COUNT = 300001, BYTES = 4 << 20 };

typedef struct {
    const char *name;
    unsigned char *data; /* BYTES long */
    void *block;
    CUdeviceptr mapped;
    size_t mapped_bytes;
} buffer_t;

enum { PLAIN, MIDDLE, POOL, VIRTUAL, MANAGED, PINNED, KINDS };

static buffer_t make(const gpu_rank_t *rank, int kind) {
    static const char *const names[KINDS] = {"cudaMalloc",     "middle of a block", "cudaMallocAsync",
                                             "virtual memory", "managed",           "pinned host"};
    buffer_t buffer = {.name = names[kind]};
    const tpc_cuda_driver_t *driver;
    switch (kind) {
    case MIDDLE:
        CUDA_OK(cudaMalloc(&buffer.block, 3 * BYTES));
        buffer.data = (unsigned char *)buffer.block + BYTES + 1234560;
        return buffer;
    case POOL:
        CUDA_OK(cudaMallocAsync(&buffer.block, BYTES, rank->stream));
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        break;
    case VIRTUAL: {
        CUmemGenericAllocationHandle handle;
        CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
        CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        size_t granularity = 0;
        CHECK_OK(tpc_cuda_driver(&driver));
        CHECK_EQ(driver->MemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM), 0);
        buffer.mapped_bytes = (2 * (size_t)BYTES + granularity - 1) / granularity * granularity;
        CHECK_EQ(driver->MemCreate(&handle, buffer.mapped_bytes, &properties, 0), 0);
        CHECK_EQ(driver->MemAddressReserve(&buffer.mapped, buffer.mapped_bytes, 0, 0, 0), 0);
        CHECK_EQ(driver->MemMap(buffer.mapped, buffer.mapped_bytes, 0, handle, 0), 0);
        CHECK_EQ(driver->MemSetAccess(buffer.mapped, buffer.mapped_bytes, &access, 1), 0);
        CHECK_EQ(driver->MemRelease(handle), 0);
        buffer.data = (unsigned char *)(uintptr_t)buffer.mapped + 4096;
        return buffer;
    }
    case MANAGED:
        CUDA_OK(cudaMallocManaged(&buffer.block, BYTES, cudaMemAttachGlobal));
        break;
    case PINNED:
        CUDA_OK(cudaHostAlloc(&buffer.block, BYTES, cudaHostAllocPortable | cudaHostAllocMapped));
        break;
    default:
        CUDA_OK(cudaMalloc(&buffer.block, BYTES));
        break;
    }
    buffer.data = buffer.block;
    return buffer;
}

static void drop(const gpu_rank_t *rank, int kind, buffer_t *buffer) {
    const tpc_cuda_driver_t *driver;
    if (kind == VIRTUAL) {
        CHECK_OK(tpc_cuda_driver(&driver));
        CHECK_EQ(driver->MemUnmap(buffer->mapped, buffer->mapped_bytes), 0);
        CHECK_EQ(driver->MemAddressFree(buffer->mapped, buffer->mapped_bytes), 0);
    } else if (kind == POOL) {
        CUDA_OK(cudaFreeAsync(buffer->block, rank->stream));
        CUDA_OK(cudaStreamSynchronize(rank->stream));
    } else if (kind == PINNED) {
        CUDA_OK(cudaFreeHost(buffer->block));
    } else {
        CUDA_OK(cudaFree(buffer->block));
    }
}

static void any_memory(gpu_rank_t *rank) {
    for (int kind = 0; kind < KINDS; kind++) {
        int in_kind = (kind + rank->rank) % KINDS, out_kind = kind; /* no rank has what its peer has */
        buffer_t in = make(rank, in_kind), out = make(rank, out_kind);
        gpu_together(rank);
        gpu_all_reduce(rank, in.data, out.data, TPCOMM_BF16, (uint64_t)kind, COUNT, in.name);
        gpu_all_reduce(rank, in.data + 2, out.data + 6, TPCOMM_BF16, (uint64_t)kind + 100, 1001, in.name);
        gpu_all_reduce(rank, out.data, out.data, TPCOMM_F32, (uint64_t)kind + 200, COUNT, out.name);
        gpu_together(rank); /* nobody frees while a peer's kernel waits */
        drop(rank, in_kind, &in);
        drop(rank, out_kind, &out);
        gpu_together(rank);
    }
}

int main(void) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        for (config.check = TPCOMM_CHECK_ASYNC; config.check <= TPCOMM_CHECK_SYNC; config.check++) {
            printf("2 %s, check %d\n", ranks_kind_name(kind), config.check);
            fflush(stdout);
            gpu_run(kind, 2, false, &config, 1 << 20, any_memory, NULL);
        }
    }
    printf("ok\n");
    return 0;
}
