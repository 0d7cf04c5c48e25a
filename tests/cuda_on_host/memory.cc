/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory. What a device has is a memfd, so that another process can map it: by a descriptor of it (cuMem), or by its
 * place in /proc (cudaIpc). Behind each allocation lies a page that nobody may touch; a forked child has none of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"
#include "runtime.h"

namespace host_cuda {

enum { PAGE = 4096, GRAIN = 2 << 20 /* of device memory */ };

struct memory_t {
    enum { DEVICE, MANAGED, HOST, REGISTERED, OPENED, MAPPED } kind;
    char *base;
    size_t bytes;
    int device, fd; /* fd: DEVICE; -1: none */
};

/* By their beginnings. */
static std::map<char *, memory_t> &all = *new std::map<char *, memory_t>;
static size_t used[DEVICES_MAX];

static size_t round_up(size_t bytes, size_t grain) {
    return (bytes + grain - 1) / grain * grain;
}

static memory_t *find(const void *pointer) {
    auto behind = all.upper_bound((char *)pointer);
    if (behind == all.begin()) return nullptr;
    memory_t &memory = std::prev(behind)->second;
    return (char *)pointer < memory.base + memory.bytes ? &memory : nullptr;
}

bool memory_is_known(const void *pointer) {
    return find(pointer) != nullptr;
}

/* NULL: not the beginning of such memory. */
static memory_t *find_base(const void *pointer, int kind) {
    auto found = all.find((char *)pointer);
    return found != all.end() && found->second.kind == kind ? &found->second : nullptr;
}

/* A new place for so many bytes; the page behind it is nobody's. */
static char *reserve(size_t bytes) {
    size_t room = round_up(bytes, PAGE) + PAGE;
    void *base = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? nullptr : (char *)base;
}

static bool map(char *base, int fd, size_t bytes, int protection) {
    return mmap(base, round_up(bytes, PAGE), protection, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED &&
           madvise(base, round_up(bytes, PAGE), MADV_DONTFORK) == 0;
}

static void unreserve(char *base, size_t bytes) {
    munmap(base, round_up(bytes, PAGE) + PAGE);
}

static int memfd(size_t bytes) {
    int fd = memfd_create("cuda_on_host", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)round_up(bytes, PAGE)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static cudaError_t allocate(int kind, size_t bytes, void **pointer_p) {
    *pointer_p = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (bytes > (size_t)1 << 34) return cudaErrorMemoryAllocation;
    int fd = memfd(bytes);
    char *base = fd >= 0 ? reserve(bytes) : nullptr;
    if (base == nullptr || !map(base, fd, bytes, PROT_READ | PROT_WRITE)) {
        if (fd >= 0) close(fd);
        return cudaErrorMemoryAllocation;
    }
    memset(base, 0xA5, bytes);
    int device = current_context()->device;
    if (kind != memory_t::DEVICE) {
        close(fd);
        fd = -1;
    } else {
        used[device] += round_up(bytes, GRAIN);
    }
    all[base] = {(decltype(memory_t::kind))kind, base, bytes, device, fd};
    made(base, kind == memory_t::DEVICE ? "device memory" : "pinned memory", bytes);
    *pointer_p = base;
    return cudaSuccess;
}

static cudaError_t release(memory_t *memory) {
    memory_t gone = *memory;
    if (gone.kind == memory_t::DEVICE) used[gone.device] -= round_up(gone.bytes, GRAIN);
    if (gone.fd >= 0) close(gone.fd);
    unreserve(gone.base, gone.bytes);
    unmade(gone.base);
    all.erase(gone.base);
    return cudaSuccess;
}

/* ------------------------------------------------------------------ between processes */

/** What a cudaIpcMemHandle_t holds. */
struct handle_t {
    pid_t pid;
    int fd;
    size_t bytes;
    int device;
};
static_assert(sizeof(handle_t) <= sizeof(cudaIpcMemHandle_t), "it fits");

/* ------------------------------------------------------------------ cuMem */

/** Kept by its handle, and by what is mapped of it. */
struct physical_t {
    int fd;
    size_t bytes;
    int device;
    bool held; /* the handle is */
    int mappings;
};
static std::map<CUmemGenericAllocationHandle, physical_t> &physical =
    *new std::map<CUmemGenericAllocationHandle, physical_t>;
static CUmemGenericAllocationHandle last_handle = 0x1000;

/** Addresses that are reserved, and what is mapped there. */
struct reserved_t {
    size_t bytes;
    CUmemGenericAllocationHandle mapped; /* 0: nothing */
};
static std::map<char *, reserved_t> &reserved = *new std::map<char *, reserved_t>;

static void *name_of(CUmemGenericAllocationHandle handle) {
    return (void *)(uintptr_t)handle;
}

static void let_go(CUmemGenericAllocationHandle handle) {
    const physical_t &memory = physical[handle];
    if (memory.held || memory.mappings > 0) return;
    used[memory.device] -= memory.bytes;
    close(memory.fd);
    physical.erase(handle);
}

static CUmemGenericAllocationHandle keep(int fd, size_t bytes, int device) {
    physical[++last_handle] = {fd, bytes, device, true, 0};
    used[device] += bytes;
    made(name_of(last_handle), "cuMem: handle", bytes);
    return last_handle;
}

static CUresult MemGetAllocationGranularity(size_t *bytes_p, const CUmemAllocationProp *,
                                            CUmemAllocationGranularity_flags) {
    *bytes_p = GRAIN;
    return CUDA_SUCCESS;
}

static CUresult MemCreate(CUmemGenericAllocationHandle *handle_p, size_t bytes, const CUmemAllocationProp *properties,
                          unsigned long long flags) {
    return driver_call("cuMemCreate", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        int device = properties->location.id;
        if (bytes == 0 || bytes % GRAIN != 0 || flags != 0 || device < 0 || device >= device_count())
            return cudaErrorInvalidValue;
        int fd = memfd(bytes);
        if (fd < 0) return cudaErrorMemoryAllocation;
        *handle_p = keep(fd, bytes, device);
        return cudaSuccess;
    });
}

static CUresult MemRelease(CUmemGenericAllocationHandle handle) {
    return driver_call("cuMemRelease", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        auto found = physical.find(handle);
        if (found == physical.end() || !found->second.held) return cudaErrorInvalidValue;
        found->second.held = false;
        unmade(name_of(handle));
        let_go(handle);
        return cudaSuccess;
    });
}

static CUresult MemExportToShareableHandle(void *fd_p, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type, unsigned long long) {
    return driver_call("cuMemExportToShareableHandle", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        auto found = physical.find(handle);
        if (found == physical.end() || !found->second.held || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
            return cudaErrorInvalidValue;
        *(int *)fd_p = dup(found->second.fd); /* not CLOEXEC, as the driver's */
        return *(int *)fd_p < 0 ? cudaErrorMemoryAllocation : cudaSuccess;
    });
}

static CUresult MemImportFromShareableHandle(CUmemGenericAllocationHandle *handle_p, void *os_handle,
                                             CUmemAllocationHandleType type) {
    return driver_call("cuMemImportFromShareableHandle", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        struct stat facts;
        int theirs = (int)(intptr_t)os_handle;
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(theirs, &facts) != 0)
            return cudaErrorInvalidValue;
        int fd = fcntl(theirs, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) return cudaErrorMemoryAllocation;
        *handle_p = keep(fd, (size_t)facts.st_size, current_context()->device);
        return cudaSuccess;
    });
}

static CUresult MemAddressReserve(CUdeviceptr *address_p, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
    return driver_call("cuMemAddressReserve", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        if (bytes == 0 || bytes % GRAIN != 0) return cudaErrorInvalidValue;
        char *base = reserve(bytes);
        if (base == nullptr) return cudaErrorMemoryAllocation;
        reserved[base] = {bytes, 0};
        made(base, "cuMem: addresses", bytes);
        *address_p = (CUdeviceptr)(uintptr_t)base;
        return cudaSuccess;
    });
}

/* All of a reservation at once, as whoever is here does it. */
static CUresult MemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long) {
    return driver_call("cuMemMap", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        char *base = (char *)(uintptr_t)address;
        auto place = reserved.find(base);
        auto memory = physical.find(handle);
        if (place == reserved.end() || place->second.mapped != 0 || place->second.bytes != bytes || offset != 0)
            return cudaErrorInvalidValue;
        if (memory == physical.end() || !memory->second.held || memory->second.bytes != bytes)
            return cudaErrorInvalidValue;
        if (!map(base, memory->second.fd, bytes, PROT_NONE)) return cudaErrorMemoryAllocation;
        memory->second.mappings++;
        place->second.mapped = handle;
        all[base] = {memory_t::MAPPED, base, bytes, memory->second.device, -1};
        return cudaSuccess;
    });
}

static CUresult MemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    return driver_call("cuMemSetAccess", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        const memory_t *memory = find_base((void *)(uintptr_t)address, memory_t::MAPPED);
        if (memory == nullptr || memory->bytes != bytes || count == 0) return cudaErrorInvalidValue;
        if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return unsupported("access that is not all");
        return mprotect(memory->base, bytes, PROT_READ | PROT_WRITE) == 0 ? cudaSuccess : cudaErrorInvalidValue;
    });
}

static CUresult MemGetAccess(unsigned long long *flags_p, const CUmemLocation *, CUdeviceptr address) {
    return driver_call("cuMemGetAccess", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        if (find_base((void *)(uintptr_t)address, memory_t::MAPPED) == nullptr) return cudaErrorInvalidValue;
        *flags_p = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return cudaSuccess;
    });
}

static CUresult MemUnmap(CUdeviceptr address, size_t bytes) {
    return driver_call("cuMemUnmap", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        char *base = (char *)(uintptr_t)address;
        auto place = reserved.find(base);
        if (place == reserved.end() || place->second.mapped == 0 || place->second.bytes != bytes)
            return cudaErrorInvalidValue;
        if (mmap(base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
            return cudaErrorMemoryAllocation;
        CUmemGenericAllocationHandle handle = place->second.mapped;
        place->second.mapped = 0;
        physical[handle].mappings--;
        let_go(handle);
        all.erase(base);
        return cudaSuccess;
    });
}

static CUresult MemAddressFree(CUdeviceptr address, size_t bytes) {
    return driver_call("cuMemAddressFree", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        char *base = (char *)(uintptr_t)address;
        auto place = reserved.find(base);
        if (place == reserved.end() || place->second.mapped != 0 || place->second.bytes != bytes)
            return cudaErrorInvalidValue;
        unreserve(base, bytes);
        reserved.erase(place);
        unmade(base);
        return cudaSuccess;
    });
}

/* ------------------------------------------------------------------ what a pointer is */

static void tell(const memory_t *memory, CUpointer_attribute what, void *value, CUdeviceptr address) {
    bool host = memory != nullptr && (memory->kind == memory_t::HOST || memory->kind == memory_t::REGISTERED);
    switch (what) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = memory == nullptr ? 0 : host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = memory == nullptr ? -2 : memory->device;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)value = memory != nullptr && memory->kind == memory_t::MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = memory == nullptr ? 0 : (CUdeviceptr)(uintptr_t)memory->base;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = memory == nullptr ? 0 : memory->bytes;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)value = memory != nullptr && memory->kind == memory_t::DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = memory == nullptr ? 0 : address;
        break;
    default:
        (void)unsupported("an attribute of a pointer");
    }
}

static CUresult PointerGetAttributes(unsigned count, CUpointer_attribute *what, void **values, CUdeviceptr address) {
    return driver_call("cuPointerGetAttributes", CONTEXT_NEEDED, [&](std::unique_lock<std::mutex> &) {
        const memory_t *memory = find((void *)(uintptr_t)address);
        for (unsigned i = 0; i < count; i++) tell(memory, what[i], values[i], address);
        return cudaSuccess;
    });
}

const driver_row_t memory_functions[] = {
    {"cuMemGetAllocationGranularity", (void *)MemGetAllocationGranularity},
    {"cuMemCreate", (void *)MemCreate},
    {"cuMemRelease", (void *)MemRelease},
    {"cuMemExportToShareableHandle", (void *)MemExportToShareableHandle},
    {"cuMemImportFromShareableHandle", (void *)MemImportFromShareableHandle},
    {"cuMemAddressReserve", (void *)MemAddressReserve},
    {"cuMemAddressFree", (void *)MemAddressFree},
    {"cuMemMap", (void *)MemMap},
    {"cuMemUnmap", (void *)MemUnmap},
    {"cuMemSetAccess", (void *)MemSetAccess},
    {"cuMemGetAccess", (void *)MemGetAccess},
    {"cuPointerGetAttributes", (void *)PointerGetAttributes},
    {nullptr, nullptr},
};

} // namespace host_cuda

/* ------------------------------------------------------------------ the runtime's functions */

using namespace host_cuda;
typedef std::unique_lock<std::mutex> held_t;

extern "C" {

cudaError_t cudaMalloc(void **pointer_p, size_t bytes) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE,
                        [&](held_t &) { return allocate(memory_t::DEVICE, bytes, pointer_p); });
}

cudaError_t cudaMallocManaged(void **pointer_p, size_t bytes, unsigned) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE,
                        [&](held_t &) { return allocate(memory_t::MANAGED, bytes, pointer_p); });
}

/* It waits for all that runs, as CUDA's does. */
cudaError_t cudaFree(void *pointer) {
    return runtime_call(__func__, pointer == nullptr ? CONTEXT_NEEDED : UNSAFE_IN_CAPTURE, [&](held_t &held) {
        if (pointer == nullptr) return cudaSuccess;
        wait_for_context(held, current_context());
        memory_t *memory = find_base(pointer, memory_t::DEVICE);
        if (memory == nullptr) memory = find_base(pointer, memory_t::MANAGED);
        return memory != nullptr ? release(memory) : cudaErrorInvalidValue;
    });
}

cudaError_t cudaMallocAsync(void **pointer_p, size_t bytes, cudaStream_t) {
    return runtime_call(__func__, CONTEXT_NEEDED,
                        [&](held_t &) { return allocate(memory_t::DEVICE, bytes, pointer_p); });
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t handle) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        stream_t *stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (find_base(pointer, memory_t::DEVICE) == nullptr) return cudaErrorInvalidValue;
        return stream_put(stream,
                          {work_t::ACTION,
                           [pointer] {
                               std::lock_guard<std::mutex> held(lock);
                               (void)release(find_base(pointer, memory_t::DEVICE));
                           },
                           {}},
                          false);
    });
}

cudaError_t cudaHostAlloc(void **pointer_p, size_t bytes, unsigned) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE,
                        [&](held_t &) { return allocate(memory_t::HOST, bytes, pointer_p); });
}

cudaError_t cudaFreeHost(void *pointer) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &held) {
        wait_for_context(held, current_context());
        memory_t *memory = find_base(pointer, memory_t::HOST);
        return memory != nullptr ? release(memory) : cudaErrorInvalidValue;
    });
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &) {
        if (bytes == 0) return cudaErrorInvalidValue;
        if (find(pointer) != nullptr) return cudaErrorHostMemoryAlreadyRegistered;
        all[(char *)pointer] = {memory_t::REGISTERED, (char *)pointer, bytes, current_context()->device, -1};
        made(pointer, "registered memory", bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaHostUnregister(void *pointer) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &held) {
        wait_for_context(held, current_context());
        if (find_base(pointer, memory_t::REGISTERED) == nullptr) return cudaErrorHostMemoryNotRegistered;
        all.erase((char *)pointer);
        unmade(pointer);
        return cudaSuccess;
    });
}

cudaError_t cudaHostGetDevicePointer(void **device_p, void *host, unsigned) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        const memory_t *memory = find(host);
        if (memory == nullptr || (memory->kind != memory_t::HOST && memory->kind != memory_t::REGISTERED))
            return cudaErrorInvalidValue;
        *device_p = host;
        return cudaSuccess;
    });
}

cudaError_t cudaMemGetInfo(size_t *free_p, size_t *total_p) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        *total_p = (size_t)1 << 36;
        *free_p = *total_p - used[current_context()->device];
        return cudaSuccess;
    });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle_p, void *pointer) {
    return runtime_call(__func__, CONTEXT_NEEDED, [&](held_t &) {
        const memory_t *memory = find_base(pointer, memory_t::DEVICE);
        if (memory == nullptr) return cudaErrorInvalidValue;
        handle_t handle = {getpid(), memory->fd, memory->bytes, memory->device};
        memset(handle_p, 0, sizeof *handle_p);
        memcpy(handle_p, &handle, sizeof handle);
        return cudaSuccess;
    });
}

cudaError_t cudaIpcOpenMemHandle(void **pointer_p, cudaIpcMemHandle_t theirs, unsigned) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &) {
        handle_t handle;
        char path[64];
        memcpy(&handle, &theirs, sizeof handle);
        if (handle.pid == getpid()) return cudaErrorDeviceUninitialized; /* as CUDA answers */
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)handle.pid, handle.fd);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        char *base = fd >= 0 ? reserve(handle.bytes) : nullptr;
        bool mapped = base != nullptr && map(base, fd, handle.bytes, PROT_READ | PROT_WRITE);
        if (fd >= 0) close(fd);
        if (!mapped) return cudaErrorMapBufferObjectFailed;
        all[base] = {memory_t::OPENED, base, handle.bytes, handle.device, -1};
        made(base, "memory opened by a handle", handle.bytes);
        *pointer_p = base;
        return cudaSuccess;
    });
}

cudaError_t cudaIpcCloseMemHandle(void *pointer) {
    return runtime_call(__func__, UNSAFE_IN_CAPTURE, [&](held_t &held) {
        wait_for_context(held, current_context());
        memory_t *memory = find_base(pointer, memory_t::OPENED);
        return memory != nullptr ? release(memory) : cudaErrorInvalidValue;
    });
}

} /* extern "C" */
