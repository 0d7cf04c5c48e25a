/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Ways of sharing device memory between ranks, one table of functions each: cumem (virtual memory, by descriptor
 * between processes), cudaipc (cudaMalloc and cudaIpc handles), pointer (cudaMalloc, between threads of one process).
 * device_memory.c tries them in order; all functions work in the rank's entered context.
 */
#ifndef TPC_PEER_MEM_SHARE_H
#define TPC_PEER_MEM_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda.h"
#include "device/cuda_copy.h"

/** What a member tells the others of its memory; plain bytes. */
typedef struct {
    uint64_t bytes;   /**< as mapped */
    uint64_t address; /**< pointer or handle that means something to threads of its process */
    unsigned char handle[64];
} tpc_share_offer_t;

/** A rank's own memory. */
typedef struct {
    const tpc_cuda_facts_t *facts; /**< of the rank's device */
    int32_t rank;
    bool several_processes; /**< the team has members in other processes */
    size_t bytes;           /**< in: wanted; create may round it up */
    void *own;              /**< NULL: none */
    uint64_t handle;        /**< of the method; 0: none */
    tpc_cuda_copier_t copier;
} tpc_share_t;

typedef enum { TPC_SHARE_ANYWHERE, TPC_SHARE_BETWEEN_PROCESSES, TPC_SHARE_WITHIN_PROCESS } tpc_share_scope_t;

typedef struct {
    const char *name;
    const char *asked_by; /**< the word of TPCOMM_PEER_MEM that chooses it */
    tpc_share_scope_t scope;
    bool passes_fd;    /**< a descriptor goes to the other processes */
    bool outlives_own; /**< a peer's mapping keeps the memory: the owner may let go of his first */
    /** Allocate and map share->bytes; *fd_p: what other processes need (CLOEXEC), or untouched. Undone by destroy also
     * where it fails. */
    tpcomm_status_t (*create)(tpc_share_t *share, tpc_share_offer_t *offer_p, int *fd_p);
    /** Map a peer's. fd: of another process, -1 if none; the caller closes it. */
    tpcomm_status_t (*open)(const tpc_share_t *share, const tpc_cuda_facts_t *theirs, bool same_process,
                            const tpc_share_offer_t *offer, int fd, void **pointer_p);
    /** All peers have mapped it: let go of what only that needed. */
    void (*settle)(tpc_share_t *share);
    void (*close)(const tpc_share_t *share, void *pointer, bool same_process);
    void (*destroy)(tpc_share_t *share);
    /** As device/cuda_copy.h. */
    tpcomm_status_t (*copy_in)(tpc_cuda_copier_t *copier, void *device, const void *host, size_t bytes,
                               const char *what, const tpc_deadline_t *deadline);
    tpcomm_status_t (*copy_out)(tpc_cuda_copier_t *copier, void *host, const void *device, size_t bytes,
                                const char *what, const tpc_deadline_t *deadline);
    tpcomm_status_t (*fill)(tpc_cuda_copier_t *copier, void *device, unsigned char byte, size_t bytes, const char *what,
                            const tpc_deadline_t *deadline);
    tpcomm_status_t (*copier_open)(size_t bytes, tpc_cuda_copier_t *copier_p);
    void (*copier_close)(tpc_cuda_copier_t *copier);
} tpc_share_method_t;

/** Those of CUDA, best first, NULL at the end. */
extern const tpc_share_method_t *const tpc_share_methods[];
extern const tpc_share_method_t tpc_share_cumem, tpc_share_cudaipc, tpc_share_pointer;

#endif
