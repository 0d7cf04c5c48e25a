/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file tpcomm.h
 * The whole public API of libtpcomm, the tensor-parallel communication runtime of an inference engine.
 *
 * Conventions. The communicator comes first and the stream last; counts are in elements, sizes in bytes, times carry
 * their unit in the name. Every function that can fail returns a status and leaves a text in tpcomm_last_error(). Only
 * fixed-width types, size_t and pointers cross this interface. A struct that crosses starts with struct_size, which the
 * caller sets to sizeof; it grows at its end only. 0 means "the default" in every field of a struct that goes in.
 *
 * Each function says: Collective (who must call it), Blocks (for how long), Threads (who may call it at once), Fails.
 */
#ifndef TPCOMM_H
#define TPCOMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TPCOMM_API __attribute__((visibility("default")))
#else
#define TPCOMM_API
#endif

#define TPCOMM_VERSION_MAJOR 0
#define TPCOMM_VERSION_MINOR 1
#define TPCOMM_VERSION_PATCH 0
/** major * 10000 + minor * 100 + patch, as tpcomm_version() returns it. */
#define TPCOMM_VERSION_NUMBER (TPCOMM_VERSION_MAJOR * 10000 + TPCOMM_VERSION_MINOR * 100 + TPCOMM_VERSION_PATCH)

/** The greatest number of ranks in one world. */
#define TPCOMM_MAX_RANKS 32

/* ---------------------------------------------------------------- status */

/** Result of a call: TPCOMM_OK or one of TPCOMM_ERR_*. Numbers are never reused. */
typedef int32_t tpcomm_status_t;

enum {
    TPCOMM_OK = 0,
    /* The call failed; the communicator is as it was. */
    TPCOMM_ERR_INVALID_ARG = -1,   /**< an argument is out of its range, or contradicts another */
    TPCOMM_ERR_INVALID_STATE = -2, /**< not allowed now: after finalize, in a forked child */
    TPCOMM_ERR_UNSUPPORTED = -3,   /**< this library, build or machine cannot do it */
    TPCOMM_ERR_NO_MEMORY = -4,     /**< memory or descriptors ran out */
    TPCOMM_ERR_TOO_SMALL = -5,     /**< the caller's buffer is too small */
    TPCOMM_ERR_BUSY = -6,          /**< another thread is inside this communicator */
    TPCOMM_ERR_VERSION = -7,       /**< the caller was compiled against a newer tpcomm.h and uses what it added */
    TPCOMM_ERR_CONFIG = -8,        /**< a variable, config field or launcher setting is not valid */
    TPCOMM_ERR_PARSE = -9,         /**< a file is not what it should be; the text names file and place */
    TPCOMM_ERR_INTERRUPTED = -10,  /**< config.interrupted asked to stop */
    TPCOMM_ERR_IO = -11,           /**< a file or socket operation failed */
    /* The communicator was not made, or is broken for good (but NO_TRANSPORT); every rank of the group gets the same.
     */
    TPCOMM_ERR_ABORTED = -40,         /**< tpcomm_abort, or a peer destroyed its communicator */
    TPCOMM_ERR_PEER_DIED = -41,       /**< a process of the group ended */
    TPCOMM_ERR_MISMATCH = -42,        /**< ranks made different calls */
    TPCOMM_ERR_TIMEOUT = -43,         /**< ranks did not arrive in time; the text names them */
    TPCOMM_ERR_BACKEND = -44,         /**< a communication library failed */
    TPCOMM_ERR_PEER_FAILED = -45,     /**< a rank failed; the text has its reason */
    TPCOMM_ERR_CONFIG_MISMATCH = -46, /**< ranks are set up differently; the text has both values */
    TPCOMM_ERR_DUPLICATE_DEVICE = -47,
    TPCOMM_ERR_NO_TRANSPORT = -48, /**< no way to carry data between the ranks of this group; of a call, for which no
                                        path can be taken, on all ranks: the group is as it was */
    TPCOMM_ERR_ADDR_IN_USE = -49,  /**< the rendezvous address is taken, or this job already runs */
    TPCOMM_ERR_AUTH = -50,    /**< a peer did not prove that it knows the job's secret, or its messages were changed */
    TPCOMM_ERR_OVERLAP = -51, /**< two calls of the group ran at once on one rank: its streams or graphs allow it */
    /* The process. */
    TPCOMM_ERR_DEVICE = -80
};

/** Name of a status, such as "TPCOMM_ERR_TIMEOUT". Never NULL; static text. Threads: any. */
TPCOMM_API const char *tpcomm_status_name(tpcomm_status_t status);

/** What a status means and what to check first, one sentence. Never NULL; static text. Threads: any. */
TPCOMM_API const char *tpcomm_status_text(tpcomm_status_t status);

/** Detailed text of this thread's last failed call; "" if none has failed. Kept until this thread's next failure.
 * Threads: any. */
TPCOMM_API const char *tpcomm_last_error(void);

/** Version of the library in use, as TPCOMM_VERSION_NUMBER. Threads: any. */
TPCOMM_API int32_t tpcomm_version(void);

/* ---------------------------------------------------------------- types */

/** One rank's membership of one group. */
typedef struct tpcomm tpcomm_t;

/** A CUDA stream; the same type as cudaStream_t. On the cpu device it must be NULL. */
typedef struct CUstream_st *tpcomm_stream_t;

/** Element type. */
typedef int32_t tpcomm_dtype_t;
enum {
    TPCOMM_F32 = 1,
    TPCOMM_F16 = 2,
    TPCOMM_BF16 = 3,
    TPCOMM_I8 = 4,
    TPCOMM_U8 = 5,
    TPCOMM_I32 = 6,
    TPCOMM_I64 = 7,
    TPCOMM_U32 = 8,
    TPCOMM_U64 = 9,
    TPCOMM_F64 = 10,
    TPCOMM_F8_E4M3 = 11,
    TPCOMM_F8_E5M2 = 12
};

/**
 * Reduction. The result is one written value, the same on every rank and path (docs/numerics.md): f32, f16 and bf16
 * accumulate in fp32 in rank order starting from rank 0's value and round once; f64 likewise in f64; integers wrap; AVG
 * divides the accumulated sum by the number of ranks before rounding; MAX and MIN propagate NaN, max(-0,+0) = +0,
 * min(-0,+0) = -0. A NaN result is the one canonical NaN (0x7FFF, 0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF) in groups of two and
 * more. AVG of integers and any reduction of 8-bit floats are TPCOMM_ERR_UNSUPPORTED.
 */
typedef int32_t tpcomm_op_t;
enum { TPCOMM_SUM = 1, TPCOMM_AVG = 2, TPCOMM_MAX = 3, TPCOMM_MIN = 4, TPCOMM_PROD = 5 };

/** Collective operation. */
typedef int32_t tpcomm_coll_t;
enum {
    TPCOMM_ALL_REDUCE = 1,
    TPCOMM_BARRIER = 2,
    TPCOMM_BROADCAST = 3,
    TPCOMM_ALL_GATHER = 4,
    TPCOMM_REDUCE_SCATTER = 5,
    /* On rows of `hidden` elements. */
    TPCOMM_ALL_REDUCE_RMS_NORM = 16,
    TPCOMM_REDUCE_SCATTER_RMS_NORM = 17,
    TPCOMM_ALL_GATHER_ROWS = 18
};

/** How a collective travels. Strings: tpcomm_path_name(). */
typedef int32_t tpcomm_path_t;
enum {
    TPCOMM_PATH_AUTO = 0,
    TPCOMM_PATH_ONESHOT = 1, /**< cuda: kernels push every input to all ranks, which reduce it themselves */
    TPCOMM_PATH_TWOSHOT = 2, /**< cuda: kernels push each part to its owner, who reduces it and pushes it to all */
    TPCOMM_PATH_NCCL = 3,    /**< cuda: NCCL, where it is found at run time; numbers in an order of its own */
    TPCOMM_PATH_FUSED_ONESHOT = 5, /**< calls with a norm: every rank reduces and normalises all rows it needs itself */
    TPCOMM_PATH_FUSED_TWOSHOT = 6, /**< calls with a norm: every rank reduces its rows; all normalise them */
    TPCOMM_PATH_UNFUSED = 7,       /**< calls with a norm: a reduction by a path of its own, then the norm */
    TPCOMM_PATH_CPU_ONESHOT = 8,   /**< cpu: every rank reads all inputs and reduces them itself */
    TPCOMM_PATH_CPU_TWOSHOT = 9,   /**< cpu: every rank reduces its share, then all read all shares */
    TPCOMM_PATH_LOCAL = 10,        /**< a group of one: a copy; with a norm: the norm alone */
    TPCOMM_PATH_RING = 11          /**< cuda: as twoshot, piece by piece through little memory: large messages */
};

/** Kind of device a group computes on. */
typedef int32_t tpcomm_device_kind_t;
enum { TPCOMM_DEVICE_AUTO = 0, TPCOMM_DEVICE_CUDA = 1, TPCOMM_DEVICE_CPU = 2 };

/**
 * How the calls of a group's ranks are compared on the host (docs/health.md). The cpu device and this library's kernels
 * find a differing call by themselves, in every mode.
 */
typedef int32_t tpcomm_check_t;
enum {
    TPCOMM_CHECK_DEFAULT = 0,
    TPCOMM_CHECK_OFF = 1,   /**< not at all */
    TPCOMM_CHECK_ASYNC = 2, /**< what nothing else compares (NCCL's calls), beside them; the default */
    TPCOMM_CHECK_SYNC = 3 /**< each call before it begins, and its buffers and stream in depth: to look for mistakes */
};

/** A switch in a struct: 0 is the default. */
enum { TPCOMM_DEFAULT = 0, TPCOMM_ON = 1, TPCOMM_OFF = 2 };

/** Bytes of one element; 0 for an unknown dtype. Threads: any. */
TPCOMM_API size_t tpcomm_dtype_size(tpcomm_dtype_t dtype);
/** Name, such as "bf16"; "?" for an unknown value. Static text. Threads: any. */
TPCOMM_API const char *tpcomm_dtype_name(tpcomm_dtype_t dtype);
/** Name, such as "sum"; "?" for an unknown value. Static text. Threads: any. */
TPCOMM_API const char *tpcomm_op_name(tpcomm_op_t op);
/** Name, such as "all_reduce"; "?" for an unknown value. Static text. Threads: any. */
TPCOMM_API const char *tpcomm_coll_name(tpcomm_coll_t coll);
/** Name, such as "cpu_oneshot"; "?" for an unknown value. Static text. Threads: any. */
TPCOMM_API const char *tpcomm_path_name(tpcomm_path_t path);

/* ---------------------------------------------------------------- ways in */

/**
 * Settings of a communicator. Order of precedence: a call's own flag, then the environment (TPCOMM_*,
 * docs/environment.md), then this struct, then the tuning file, then what is built in. Ranks must agree on every field
 * but interrupted; a field left 0 takes rank 0's value.
 */
typedef struct {
    uint32_t struct_size;             /**< sizeof(tpcomm_config_t) */
    tpcomm_device_kind_t device_kind; /**< 0: cuda where every rank can, else cpu */
    int32_t deterministic;            /**< switch; on: only paths of the one numerical result, at every size */
    tpcomm_path_t path;               /**< forced path; 0: chosen by size */
    uint32_t init_timeout_ms;         /**< limit of init; 0: 120000 */
    uint32_t op_timeout_ms;           /**< limit of each wait in a collective; 0: 300000 */
    uint64_t workspace_bytes;         /**< limit of memory that peers write; 0: 32 MiB */
    const char *tuning_file;          /**< tuning JSON, read by rank 0 alone; NULL: none */
    int32_t (*interrupted)(
        void *arg); /**< asked every 100 ms in host waits; non-zero ends the wait with ERR_INTERRUPTED; may be NULL */
    void *interrupted_arg; /**< handed to interrupted */
    int32_t device;        /**< cuda: ordinal + 1 of this rank's device; 0: the calling thread's current one */
    int32_t share_device; /**< switch; on: several ranks may use one device. Their kernels then run beside each other */
    tpcomm_check_t check; /**< how the ranks' calls are compared; 0: TPCOMM_CHECK_ASYNC */
    int32_t reserved;     /**< must be 0 */
} tpcomm_config_t;

/**
 * Join the world that a launcher describes: the first complete set of TPCOMM_RANK/SIZE, torchrun, Open MPI, PMI or
 * Slurm variables (docs/launch.md).
 * @param config  settings, or NULL for the defaults; not kept.
 * @param comm    out: this rank's membership of the world; the caller destroys it.
 * Collective: every rank of the world. Blocks: up to init_timeout_ms. Threads: any.
 * Fails: CONFIG (no launcher, or contradicting variables), TIMEOUT (naming the missing ranks), ADDR_IN_USE,
 * PEER_FAILED, CONFIG_MISMATCH, NO_TRANSPORT, UNSUPPORTED, INTERRUPTED.
 */
TPCOMM_API tpcomm_status_t tpcomm_init_env(const tpcomm_config_t *config, tpcomm_t **comm);

/** Names a world that is being made; plain bytes, to be sent to every rank by the caller's own means. */
typedef struct {
    uint8_t bytes[128];
} tpcomm_unique_id_t;

/**
 * Make a name for a new world; called once, in the process that becomes rank 0.
 * @param id  out.
 * Collective: no. Blocks: no. Threads: any. Fails: IO, NO_MEMORY.
 */
TPCOMM_API tpcomm_status_t tpcomm_unique_id_create(tpcomm_unique_id_t *id);

/**
 * Join the world named by an id, as ncclCommInitRank.
 * @param id      made by tpcomm_unique_id_create.
 * @param rank    0 to size - 1.
 * @param size    number of ranks, 1 to TPCOMM_MAX_RANKS.
 * @param config  settings, or NULL; not kept.
 * @param comm    out; the caller destroys it.
 * Collective, Blocks, Threads, Fails: as tpcomm_init_env.
 */
TPCOMM_API tpcomm_status_t tpcomm_init_rank(const tpcomm_unique_id_t *id, int32_t rank, int32_t size,
                                            const tpcomm_config_t *config, tpcomm_t **comm);

/**
 * The caller's own all-gather. Puts bytes from mine of rank r at all + r * bytes on every rank. Called only inside
 * tpcomm_init_exchange, by its thread.
 * @return 1 when done; anything else: it failed.
 */
typedef int32_t (*tpcomm_exchange_fn)(void *arg, const void *mine, void *all, size_t bytes, uint32_t timeout_ms);

/**
 * Join a world whose ranks already have an all-gather of their own (MPI, torch.distributed's store, gRPC).
 * @param exchange  the all-gather; called a small, equal number of times on every rank.
 * @param arg       handed to exchange.
 * Collective, Blocks, Threads, Fails: as tpcomm_init_env; BACKEND where exchange failed.
 */
TPCOMM_API tpcomm_status_t tpcomm_init_exchange(int32_t rank, int32_t size, tpcomm_exchange_fn exchange, void *arg,
                                                const tpcomm_config_t *config, tpcomm_t **comm);

/**
 * Make a world of n ranks that are threads of this process, as ncclCommInitAll. Each communicator is then used by one
 * thread of its own.
 * @param n        1 to TPCOMM_MAX_RANKS.
 * @param devices  cuda: n ordinals, one a rank; a device that stands twice asks for sharing. NULL: rank r uses device
 * r, or config.device where that is given. Not looked at on the cpu device.
 * @param config  settings of all ranks, or NULL; not kept.
 * @param comms   out: n communicators in rank order; the caller destroys each.
 * Collective: one call makes all ranks. Blocks: up to init_timeout_ms. Threads: any. Fails: as tpcomm_init_env.
 */
TPCOMM_API tpcomm_status_t tpcomm_init_local(int32_t n, const int32_t *devices, const tpcomm_config_t *config,
                                             tpcomm_t **comms);

/* ---------------------------------------------------------------- ways out */

/**
 * Agree to end: waits until every rank has called it, and on cuda until this rank's eager calls are done.
 * Afterwards the only legal calls are introspection and destroy.
 * Collective: yes. Blocks: up to op_timeout_ms. Threads: one per communicator. Fails: as tpcomm_barrier;
 * INVALID_STATE if an open batch has calls of it or a capture bracket is open (it is as it was then).
 */
TPCOMM_API tpcomm_status_t tpcomm_finalize(tpcomm_t *comm);

/**
 * Free a communicator; NULL is allowed. Without a finalize before it, peers that still use the group get
 * TPCOMM_ERR_ABORTED naming this rank. Graphs that its calls were captured in may be there still: a replay of them then
 * leaves at once, with NaN as results; what memory they need goes with a later destroy or init after the last of them.
 * Collective: no. Blocks: at most 1 s. Threads: nobody else may use comm any more; tpcomm_abort first wakes a thread
 * that waits inside it. Fails: BUSY if a thread is still inside after 1 s, INVALID_STATE if an open batch has calls of
 * it (nothing is freed then).
 */
TPCOMM_API tpcomm_status_t tpcomm_destroy(tpcomm_t *comm);

/**
 * Break the group on all ranks: every wait of every rank ends with TPCOMM_ERR_ABORTED and the reason.
 * @param reason  text for every rank's error; NULL or "" for none; the first 200 bytes count; what is no printable
 * UTF-8 becomes '?'. Collective: no. Blocks: no. Threads: any, also beside a call in flight. Fails: INVALID_ARG (comm
 * NULL); INVALID_STATE (in a forked child).
 */
TPCOMM_API tpcomm_status_t tpcomm_abort(tpcomm_t *comm, const char *reason);

/** What broke a communicator. */
typedef struct {
    uint32_t struct_size;   /**< in: sizeof(tpcomm_error_t) */
    tpcomm_status_t status; /**< TPCOMM_OK while healthy */
    int32_t rank;           /**< group rank that saw or caused it first; -1 if none */
    tpcomm_coll_t coll;     /**< the call it was in on that rank; 0 if none */
    uint64_t seq;           /**< that call's number on that rank */
    char text[512];
} tpcomm_error_t;

/**
 * Whether the communicator is healthy: TPCOMM_OK or the sticky status that every further call will return. With error
 * NULL it is a single load.
 * @param error  out, may be NULL.
 * Collective: no. Blocks: no. Threads: any.
 */
TPCOMM_API tpcomm_status_t tpcomm_async_status(const tpcomm_t *comm, tpcomm_error_t *error);

/* ---------------------------------------------------------------- collectives */

/** Bits of tpcomm_call_t.flags. */
enum {
    TPCOMM_CALL_CAPTURED = 1 /**< tpcomm_explain: as if its stream were being captured. Of a call its stream says it */
};

/** One collective call; serves tpcomm_call and tpcomm_explain alike. */
typedef struct {
    uint32_t struct_size; /**< sizeof(tpcomm_call_t) */
    tpcomm_coll_t coll;
    tpcomm_dtype_t dtype; /**< not looked at by a barrier */
    tpcomm_op_t op;       /**< not looked at by a barrier */
    tpcomm_path_t path;   /**< forced path; 0: chosen */
    uint32_t flags;       /**< TPCOMM_CALL_*; 0 in a call */
    int32_t root;         /**< group rank whose data a broadcast sends; otherwise not looked at */
    int32_t hidden; /**< all_gather_rows and calls with a norm: elements of a row, count is rows * hidden; else 0 */
    const void *in; /**< on the group's device; size and overlap: see the collective; may be NULL if count is 0 */
    void *out;      /**< likewise */
    uint64_t count; /**< elements as the named function counts them, equal on all ranks */
    uint64_t tag;   /**< the engine's step or batch id, for flight records; may differ between ranks */
} tpcomm_call_t;

/**
 * Run one collective. (Calls with a norm have functions of their own, since they take more; tpcomm_explain takes them
 * all.)
 * @param call    not kept.
 * @param stream  cpu device: must be NULL, and the call returns when the result is there. cuda device: the stream the
 * call is enqueued on; a graph being captured there takes it; NULL (the legacy stream) is refused where ranks share a
 * device. Collective: every rank of the group, in the same order. Blocks: cpu device: until the peers arrive, each
 * wait at most op_timeout_ms. Threads: one per communicator; a second gets BUSY at once. Fails: INVALID_ARG,
 * UNSUPPORTED, TOO_SMALL (a forced path cannot carry the size), BUSY, INVALID_STATE; MISMATCH, TIMEOUT, PEER_DIED,
 * ABORTED, PEER_FAILED, INTERRUPTED break the group.
 */
TPCOMM_API tpcomm_status_t tpcomm_call(tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_stream_t stream);

/**
 * out[i] = op over ranks of in[i], on every rank.
 * @param in, out  count elements each; out == in is allowed, any other overlap is not.
 * Everything else as tpcomm_call.
 */
TPCOMM_API tpcomm_status_t tpcomm_all_reduce(tpcomm_t *comm, const void *in, void *out, size_t count,
                                             tpcomm_dtype_t dtype, tpcomm_op_t op, tpcomm_stream_t stream);

/**
 * root's in to every rank's out, bit for bit.
 * @param in   count elements; looked at on root alone.
 * @param out  count elements; out == in is allowed, any other overlap is not.
 * Everything else as tpcomm_call.
 */
TPCOMM_API tpcomm_status_t tpcomm_broadcast(tpcomm_t *comm, const void *in, void *out, size_t count,
                                            tpcomm_dtype_t dtype, int32_t root, tpcomm_stream_t stream);

/**
 * out[r * count + i] = rank r's in[i], on every rank, bit for bit.
 * @param in   count elements.
 * @param out  size * count elements; in == out + rank * count is in place, any other overlap is not allowed.
 * Everything else as tpcomm_call.
 */
TPCOMM_API tpcomm_status_t tpcomm_all_gather(tpcomm_t *comm, const void *in, void *out, size_t count,
                                             tpcomm_dtype_t dtype, tpcomm_stream_t stream);

/**
 * out[i] = op over ranks of in[rank * count + i]: each rank gets its share of the reduction, the same bits as an
 * all_reduce.
 * @param in   size * count elements.
 * @param out  count elements; out == in + rank * count is in place, any other overlap is not allowed.
 * Everything else as tpcomm_call.
 */
TPCOMM_API tpcomm_status_t tpcomm_reduce_scatter(tpcomm_t *comm, const void *in, void *out, size_t count,
                                                 tpcomm_dtype_t dtype, tpcomm_op_t op, tpcomm_stream_t stream);

/* ---------------------------------------------------------------- rows: all_reduce + residual + RMSNorm */

/** Quantised output of a norm. */
typedef int32_t tpcomm_quant_t;
enum {
    TPCOMM_QUANT_NONE = 0,
    TPCOMM_QUANT_F8_TENSOR = 1, /**< f8_e4m3, one scale for all rows, given by the caller */
    TPCOMM_QUANT_F8_TOKEN = 2   /**< f8_e4m3, a scale for each row, made here: its greatest magnitude / 448 */
};

/**
 * Rows to normalise. For each row, in this order (docs/numerics.md has every rounding):
 *
 *   sum       = in, summed over the ranks, rounded to dtype
 *   x         = sum + residual, rounded to dtype; sum where there is no residual
 *   residual  = x
 *   out       = x / sqrt(mean(x^2) + eps) * (weight + weight_bias), rounded to dtype
 *   quantized = out / scale, as f8_e4m3, saturating at +-448
 *
 * A matrix is rows of hidden elements; row t begins t * stride elements after its first element. out may be in, with
 * the same stride; any other two of the matrices and vectors lie apart, but for two that are only read. Everything lies
 * on the device of the call.
 */
typedef struct {
    uint32_t struct_size;        /**< sizeof(tpcomm_rms_norm_t) */
    tpcomm_dtype_t dtype;        /**< f32, f16 or bf16: in, residual, sum, out */
    tpcomm_dtype_t weight_dtype; /**< dtype or f32; 0: dtype */
    tpcomm_quant_t quant;
    tpcomm_path_t path; /**< forced path; 0: chosen */
    int32_t hidden;     /**< elements of a row: a multiple of 8, at most 16384 */
    uint64_t tokens;    /**< rows; 0 is allowed */
    float eps;          /**< greater than 0 */
    float weight_bias;  /**< added to each weight: 1 for models that keep weight - 1, such as Gemma */
    const void *in;
    const void *weight; /**< hidden elements */
    void *residual;     /**< read and written; NULL: none */
    void *sum;          /**< NULL: not wanted */
    void *out;          /**< NULL: not wanted, where there is a quantised output */
    void *quantized;    /**< f8_e4m3; NULL with TPCOMM_QUANT_NONE */
    float *scale;       /**< F8_TENSOR: one, read, greater than 0; F8_TOKEN: one a row, written; aligned to 4 bytes */
    uint64_t in_stride; /**< in elements, as all strides; 0: hidden */
    uint64_t residual_stride;  /**< 0: hidden */
    uint64_t sum_stride;       /**< 0: hidden */
    uint64_t out_stride;       /**< 0: hidden */
    uint64_t quantized_stride; /**< 0: hidden */
    uint64_t tag;              /**< as tpcomm_call_t.tag */
} tpcomm_rms_norm_t;

/**
 * Sum rows over the ranks, add the residual, normalise, quantise: on every rank, in one call. The bits are those of
 * tpcomm_all_reduce followed by tpcomm_rms_norm, on every path. Ranks must give equal dtypes, tokens, hidden, eps,
 * weight_bias and quant, all of them a residual or none, all of them room for the sum (out or sum) or none, and all of
 * them packed rows (stride hidden) of in and of that room or none: else MISMATCH. residual and weight are meant to hold
 * the same on all ranks; they are not compared.
 * @param args  not kept.
 * Everything else as tpcomm_call. Fails also: UNSUPPORTED (hidden, a mixture of dtypes, naming the values).
 */
TPCOMM_API tpcomm_status_t tpcomm_all_reduce_rms_norm(tpcomm_t *comm, const tpcomm_rms_norm_t *args,
                                                      tpcomm_stream_t stream);

/**
 * The sequence-parallel form: each rank gets the sum of its own rows (tpcomm_row_range) and normalises these alone, to
 * the same bits. in has all tokens rows; residual, sum, out and quantized have this rank's rows alone, and scale (of
 * F8_TOKEN) one for each of these. out is in only in a group of one. Where the tokens do not divide by the ranks, so
 * that some may have no rows and no buffers for them, residual, room and packed rows are not compared.
 * Everything else as tpcomm_all_reduce_rms_norm.
 */
TPCOMM_API tpcomm_status_t tpcomm_reduce_scatter_rms_norm(tpcomm_t *comm, const tpcomm_rms_norm_t *args,
                                                          tpcomm_stream_t stream);

/**
 * The rows of every rank to every rank, bit for bit: undoes the partition of tpcomm_row_range.
 * @param in      this rank's rows.
 * @param out     tokens rows; in == out + first * hidden elements (first: of tpcomm_row_range) is in place, any other
 * overlap is not allowed.
 * @param hidden  elements of a row, 1 or more; 1 gathers scales.
 * Everything else as tpcomm_call.
 */
TPCOMM_API tpcomm_status_t tpcomm_all_gather_rows(tpcomm_t *comm, const void *in, void *out, uint64_t tokens,
                                                  int32_t hidden, tpcomm_dtype_t dtype, tpcomm_stream_t stream);

/**
 * Which rows a rank of a group of size ranks keeps: with k = tokens / size, rounded up, rank r has rows r * k to
 * r * k + k - 1, as far as there are that many. The last ranks may have fewer, or none.
 * @param first, count  out.
 * Collective: no. Blocks: no. Threads: any. Fails: INVALID_ARG.
 */
TPCOMM_API tpcomm_status_t tpcomm_row_range(uint64_t tokens, int32_t size, int32_t rank, uint64_t *first,
                                            uint64_t *count);

/**
 * The norm alone: in is the sum. No group takes part, so sum must be NULL and path 0. An open batch does not take it:
 * it runs at once, before the batch's calls.
 * @param device_kind  TPCOMM_DEVICE_CPU or TPCOMM_DEVICE_CUDA: where everything lies. cuda: the calling thread's
 * current device.
 * @param stream  as tpcomm_call. On a GPU that ranks share, no kernel may be loaded while a rank waits: a group loads
 * this one as well.
 * Collective: no. Blocks: cpu device: until done. Threads: any. Fails: INVALID_ARG; UNSUPPORTED (as
 * tpcomm_all_reduce_rms_norm, and where this build has no such device); DEVICE.
 */
TPCOMM_API tpcomm_status_t tpcomm_rms_norm(tpcomm_device_kind_t device_kind, const tpcomm_rms_norm_t *args,
                                           tpcomm_stream_t stream);

/**
 * Begin a batch on this thread: the calls until the matching end, on any communicators, are taken together, and two
 * ranks may make them in different orders as long as each communicator's own order is the same. Batches nest. On the
 * cpu device the calls run in the outermost end, communicator by communicator in an order that all ranks share; until
 * then their buffers and communicators must stay. A call's arguments are checked when it is made.
 * Collective: no. Blocks: no. Threads: each has its own batch. Fails: never.
 */
TPCOMM_API tpcomm_status_t tpcomm_batch_begin(void);

/**
 * End a batch. All its calls run, also after one of them failed.
 * Blocks: as its calls. Fails: INVALID_STATE (no batch is open); NO_MEMORY; the first failure of its calls.
 */
TPCOMM_API tpcomm_status_t tpcomm_batch_end(void);

/** Returns when every rank of the group has called it. Everything else as tpcomm_call. */
TPCOMM_API tpcomm_status_t tpcomm_barrier(tpcomm_t *comm, tpcomm_stream_t stream);

/**
 * Change the limit of each wait in a collective, from the next wait on, for all ranks of the group on this host.
 * @param timeout_ms  1 or more; there is no "never".
 * Collective: no. Blocks: no. Threads: any. Fails: INVALID_ARG; INVALID_STATE (in a forked child).
 */
TPCOMM_API tpcomm_status_t tpcomm_set_op_timeout(tpcomm_t *comm, uint32_t timeout_ms);

/**
 * Have this rank's kernels on a GPU note how long each call waits and for whom, also in replays of graphs that are
 * captured already, or no more; tpcomm_stats and tpcomm_rank_info tell (docs/health.md). Off at first, unless
 * TPCOMM_NOTE_WAITS says otherwise. On the cpu device waits are always known.
 * @param on  TPCOMM_ON or TPCOMM_OFF.
 * Collective: no; each rank's own affair. Blocks: no. Threads: any. Fails: INVALID_ARG, DEVICE; INVALID_STATE (in a
 * forked child).
 */
TPCOMM_API tpcomm_status_t tpcomm_note_waits(tpcomm_t *comm, int32_t on);

/* ---------------------------------------------------------------- graphs */

/*
 * Calls on a stream that is being captured become part of its graph; nothing has to be told. These brackets are for
 * certainty: at the end the ranks compare what they have captured, so that a difference is an error before any replay,
 * and not in one (docs/graphs.md).
 */

/**
 * Begin to note what is captured on this communicator: on cuda the calls on capturing streams, in as many graphs as
 * there are; on the cpu device, which captures nothing, all calls. Brackets do not nest. Every rank or none.
 * Collective: no. Blocks: no. Threads: one per communicator. Fails: INVALID_STATE (a bracket is open), BUSY, NO_MEMORY;
 * the failure in force.
 */
TPCOMM_API tpcomm_status_t tpcomm_graph_capture_begin(tpcomm_t *comm);

/**
 * Compare with all ranks what was captured since begin: how many calls, in which order and graphs, and each call's
 * collective, path, dtype, op, root and count. Streams may still be capturing; no stream is looked at.
 * Collective: every rank of the group, in its order of calls. Blocks: up to init_timeout_ms. Threads: one per
 * communicator. Fails: INVALID_STATE (no bracket is open; an open batch has calls of it), BUSY; MISMATCH (naming the
 * first call that differs on both sides), TIMEOUT (naming who did not come), PEER_DIED, ABORTED, PEER_FAILED and
 * INTERRUPTED break the group, so that a replay of what was captured ends at once.
 */
TPCOMM_API tpcomm_status_t tpcomm_graph_capture_end(tpcomm_t *comm);

/* ---------------------------------------------------------------- groups */

/**
 * Make a group of some ranks of parent. The same ranks may form any number of groups; parent may be destroyed first.
 * @param ranks  n ranks of parent, in the new group's rank order; no rank twice.
 * @param n      1 to the size of parent.
 * @param name   for texts, such as "tp"; equal on all members; at most 63 bytes; NULL: "group".
 * @param group  out: the caller destroys it; NULL with TPCOMM_OK at once where the caller is not listed.
 * Collective: the listed ranks alone, each with the same list. Blocks: up to init_timeout_ms. Threads: several may make
 * different groups at once, of different names where they share more than one member; groups of the same members are
 * made in one order. Fails: INVALID_ARG; MISMATCH (the members' lists, orders or names differ; both are named); TIMEOUT
 * naming who is missing (so do lists that differ where their members do not meet); whatever breaks parent meanwhile,
 * such as ABORTED; PEER_DIED, PEER_FAILED, as tpcomm_init_env. A call that failed can be made again.
 */
TPCOMM_API tpcomm_status_t tpcomm_group_create(tpcomm_t *parent, const int32_t *ranks, int32_t n, const char *name,
                                               tpcomm_t **group);

/**
 * Split parent into groups by color, as ncclCommSplit.
 * @param color  ranks of one color form a group; negative: in none (group is NULL).
 * @param key    orders the ranks of a group; equal keys by rank of parent.
 * @param name, group  as tpcomm_group_create.
 * Collective: every rank of parent. Everything else as tpcomm_group_create.
 */
TPCOMM_API tpcomm_status_t tpcomm_group_split(tpcomm_t *parent, int32_t color, int32_t key, const char *name,
                                              tpcomm_t **group);

/**
 * Make comm's group anew without the ranks that are lost, in the same processes: after a failure, also of the world's
 * communicator. comm stays broken; destroy it when nothing uses it any more.
 * @param lost   n group ranks of comm to leave out, equal on all that call; NULL with n 0: those whose process has
 * ended, or which have destroyed all communicators of comm's world.
 * @param group  out: the others, in comm's order and under its name; the caller destroys it.
 * Collective: every rank that is not lost. Blocks: up to init_timeout_ms. Threads: one per communicator. Fails:
 * INVALID_ARG (a rank outside the group; this rank itself); TIMEOUT naming who of the others has not come; MISMATCH
 * (other lists); as tpcomm_group_create.
 */
TPCOMM_API tpcomm_status_t tpcomm_group_shrink(tpcomm_t *comm, const int32_t *lost, int32_t n, tpcomm_t **group);

/**
 * World ranks of the members, in group order.
 * @param ranks  out: as many as the group has, at most n.
 * Collective: no. Blocks: no. Threads: any. Fails: INVALID_ARG; TOO_SMALL (n below the group's size; the first n are
 * written).
 */
TPCOMM_API tpcomm_status_t tpcomm_group_ranks(const tpcomm_t *comm, int32_t *ranks, int32_t n);

/** The parallel groups of an engine: every rank is in one group of each kind. */
typedef struct tpcomm_mesh tpcomm_mesh_t;

/** Sizes of a mesh; 0 means 1, but for ep. */
typedef struct {
    uint32_t struct_size; /**< sizeof(tpcomm_mesh_config_t) */
    int32_t dp;           /**< data parallel replicas */
    int32_t pp;           /**< pipeline stages */
    int32_t cp;           /**< context parallel ranks */
    int32_t tp;           /**< tensor parallel ranks */
    int32_t ep;           /**< expert parallel ranks, a divisor of dp * cp * tp; 0: all of them */
} tpcomm_mesh_config_t;

/**
 * Make the groups "tp", "cp", "pp", "dp" and "ep". World rank = ((dp * PP + pp) * CP + cp) * TP + tp, so TP ranks are
 * neighbours (vLLM's layout). The EP ranks of one pipeline stage are taken in the order dp, cp, tp, ep at a time. A tp
 * group that spans hosts is logged as a warning, with what to change.
 * @param mesh  out: the caller destroys it, and its groups with it.
 * Collective: every rank of world. Blocks: up to init_timeout_ms. Threads: one per communicator.
 * Fails: CONFIG (the sizes do not multiply to the world's; ep does not divide); MISMATCH (ranks gave different sizes,
 * both named); as tpcomm_group_create.
 */
TPCOMM_API tpcomm_status_t tpcomm_mesh_create(tpcomm_t *world, const tpcomm_mesh_config_t *config,
                                              tpcomm_mesh_t **mesh);

/**
 * This rank's group of a kind.
 * @param kind   "tp", "cp", "pp", "dp" or "ep".
 * @param group  out: belongs to the mesh.
 * Collective: no. Blocks: no. Threads: any. Fails: INVALID_ARG (naming the kinds there are).
 */
TPCOMM_API tpcomm_status_t tpcomm_mesh_group(const tpcomm_mesh_t *mesh, const char *kind, tpcomm_t **group);

/**
 * The membership of all groups of all kinds as a text, a line a kind: "tp: {0,1} {2,3}", by world rank.
 * @param text  out, bytes long, always terminated. Fails: TOO_SMALL if the text was cut.
 */
TPCOMM_API tpcomm_status_t tpcomm_mesh_text(const tpcomm_mesh_t *mesh, char *text, size_t bytes);

/** Agree to end all groups of the mesh: tpcomm_finalize of each. Collective: every rank of the mesh. */
TPCOMM_API tpcomm_status_t tpcomm_mesh_finalize(tpcomm_mesh_t *mesh);

/** Destroy all groups of the mesh and the mesh; NULL is allowed. As tpcomm_destroy. */
TPCOMM_API tpcomm_status_t tpcomm_mesh_destroy(tpcomm_mesh_t *mesh);

/* ---------------------------------------------------------------- host messages */

/*
 * The engine's control plane: messages of host memory between the ranks of a group, each step's batch for example, on
 * one host or several. They have an order of their own and may run on another thread beside the group's collectives,
 * whatever the device is doing. timeout_ms limits each wait; 0: op_timeout_ms. A failure breaks the group, as a
 * collective's does.
 */

/**
 * root's bytes to every rank.
 * @param data   bytes long, equal on all ranks; sent from on root, written elsewhere.
 * Collective: every rank of the group. Blocks: until root and all others have come. Threads: one per communicator at a
 * time; another gets BUSY. Fails: INVALID_ARG, BUSY, INVALID_STATE; MISMATCH, TIMEOUT, PEER_DIED, ABORTED break the
 * group.
 */
TPCOMM_API tpcomm_status_t tpcomm_host_broadcast(tpcomm_t *comm, void *data, size_t bytes, int32_t root,
                                                 uint32_t timeout_ms);

/**
 * Every rank's bytes to every rank.
 * @param mine  bytes long.
 * @param all   size * bytes: rank r's at r * bytes; mine == all + rank * bytes is in place.
 * Everything else as tpcomm_host_broadcast.
 */
TPCOMM_API tpcomm_status_t tpcomm_host_all_gather(tpcomm_t *comm, const void *mine, void *all, size_t bytes,
                                                  uint32_t timeout_ms);

/** Returns when every rank has called it. Everything else as tpcomm_host_broadcast. */
TPCOMM_API tpcomm_status_t tpcomm_host_barrier(tpcomm_t *comm, uint32_t timeout_ms);

/* ---------------------------------------------------------------- introspection */

/** Where an expectation comes from. */
enum { TPCOMM_SOURCE_NONE = 0, TPCOMM_SOURCE_MEASURED = 1, TPCOMM_SOURCE_ESTIMATED = 2 };

/** Why not: one path that was not taken. */
typedef struct {
    tpcomm_path_t path;
    char why_not[156];
} tpcomm_rejected_t;

/** The choice for one call, the same on every rank. */
typedef struct {
    uint32_t struct_size; /**< in: sizeof(tpcomm_decision_t) */
    tpcomm_path_t path;
    uint64_t bytes_min;  /**< the choice holds for messages from bytes_min ... */
    uint64_t bytes_max;  /**< ... to bytes_max, both included */
    int64_t expected_ns; /**< expected time of the call; -1: not known */
    int32_t source;      /**< TPCOMM_SOURCE_* of the row that decided */
    int32_t rejected_count;
    char reason[256];
    tpcomm_rejected_t rejected[8];
    int32_t capturing; /**< switch; on: the choice for a call that is captured in a graph; off: for an eager one */
    tpcomm_path_t other_path; /**< the choice for the same call the other way; 0: no path carries that */
} tpcomm_decision_t;

/**
 * Say which path a call would take and why; runs nothing. It may be another one while a graph is captured: flag
 * TPCOMM_CALL_CAPTURED asks for that, decision.other_path tells it in short.
 * @param call  pointers in it are not looked at.
 * @param decision  out.
 * Collective: no. Blocks: no. Threads: any. Fails: as tpcomm_call where the call itself is refused.
 */
TPCOMM_API tpcomm_status_t tpcomm_explain(const tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_decision_t *decision);

/**
 * The same as a text of several lines: the call, the path, the reason, the choice the other way (in a graph, or outside
 * of one), each rejected path.
 * @param text  out, bytes long, always terminated.
 * Fails: TOO_SMALL if the text was cut.
 */
TPCOMM_API tpcomm_status_t tpcomm_explain_text(const tpcomm_t *comm, const tpcomm_call_t *call, char *text,
                                               size_t bytes);

/** Facts about a communicator. */
typedef struct {
    uint32_t struct_size; /**< in: sizeof(tpcomm_info_t) */
    int32_t rank;
    int32_t size;
    tpcomm_device_kind_t device_kind;
    uint64_t workspace_bytes; /**< memory of the group that peers write, this rank's part; cuda: on its device */
    uint32_t op_timeout_ms;   /**< in force now */
    uint32_t init_us;         /**< how long init took */
    int32_t deterministic;    /**< TPCOMM_ON or TPCOMM_OFF */
    tpcomm_check_t check;     /**< TPCOMM_CHECK_OFF, ASYNC or SYNC */
    char topology[32];        /**< cpu; same_gpu, nvlink, pcie_p2p, mixed (docs/gpu.md) */
    char name[64];            /**< of the group: "world" */
    char launcher[192];       /**< how the ranks met, with the variables used */
    char paths[256];          /**< paths that can be taken, then those that cannot, each with its reason */
    char tuning[256];         /**< where the tuning table comes from */
    char cpu_kernels[64];     /**< instruction set of the reduction kernels */
    char nccl[256];           /**< NCCL in use: its version and file; or why it is not used; "" on the cpu device */
} tpcomm_info_t;

/** Describe the communicator. @param info out. Collective: no. Blocks: no. Threads: any. Fails: INVALID_ARG, VERSION.
 */
TPCOMM_API tpcomm_status_t tpcomm_comm_info(const tpcomm_t *comm, tpcomm_info_t *info);

/** Facts about one rank of the group. */
typedef struct {
    uint32_t struct_size; /**< in: sizeof(tpcomm_rank_info_t) */
    int32_t rank;
    int32_t pid;
    int32_t same_process; /**< 1: a thread of this process */
    uint64_t seq;         /**< its last call begun */
    uint64_t times_last;  /**< calls in which it was the last to arrive, as seen by this rank; cuda: where waits are
                             noted  (tpcomm_note_waits), and only if it came 2 us or more behind */
    char host[64];        /**< host identity */
    char device[64];      /**< name of its GPU; "" on the cpu device, as the two below */
    char bus_id[16];      /**< of its GPU: "0000:0f:00.0" */
    char link[48]; /**< from this rank's GPU to it: "nvlink x18 (switch)", "pcie (host bridge)", "same gpu", ... */
} tpcomm_rank_info_t;

/** Describe a rank. @param rank group rank. @param info out. Collective: no. Blocks: no. Threads: any. Fails:
 * INVALID_ARG. */
TPCOMM_API tpcomm_status_t tpcomm_rank_info(const tpcomm_t *comm, int32_t rank, tpcomm_rank_info_t *info);

/** What one path carried so far, from the counters of the path itself. */
typedef struct {
    uint32_t struct_size; /**< in: sizeof(tpcomm_stats_t) */
    tpcomm_path_t path;
    uint64_t calls;      /**< completed */
    uint64_t bytes;      /**< message bytes of those calls, as explain counts them: of the larger buffer */
    uint64_t wire_bytes; /**< bytes this rank wrote for its peers */
    uint64_t wait_ns;    /**< time spent waiting for peers */
    uint64_t skew_ns;    /**< sum over calls of last arrival minus first arrival; cuda: minus this rank's own */
    uint64_t waits;      /**< calls that wait_ns and skew_ns are sums of; cuda: kernels, each replay counted */
} tpcomm_stats_t;

/**
 * Statistics by path.
 * @param index  0, 1, ... ; one entry per path that an all_reduce of the group, alone or with a norm, can take.
 * Collective: no. Blocks: no. Threads: any; a call in flight may be half counted. Fails: INVALID_ARG (index past the
 * last).
 */
TPCOMM_API tpcomm_status_t tpcomm_stats(const tpcomm_t *comm, int32_t index, tpcomm_stats_t *stats);

/**
 * Write this rank's last calls in all groups of comm's world to a file (docs/health.md), as a failure does by itself
 * where TPCOMM_FLIGHT_DIR is set; tools/tpcomm_flight.py compares the files of all ranks.
 * @param path  replaced by a whole file, or left as it was.
 * Collective: no. Blocks: while it writes. Threads: any, also beside a call in flight. Fails: INVALID_ARG, IO,
 * NO_MEMORY, INVALID_STATE (in a forked child).
 */
TPCOMM_API tpcomm_status_t tpcomm_flight_dump(tpcomm_t *comm, const char *path);

/* ---------------------------------------------------------------- log */

enum { TPCOMM_LOG_NONE = 0, TPCOMM_LOG_ERROR = 1, TPCOMM_LOG_WARN = 2, TPCOMM_LOG_INFO = 3, TPCOMM_LOG_DEBUG = 4 };

/** Receives one line without its line end; called by any thread, with no lock held. */
typedef void (*tpcomm_log_fn)(void *arg, int32_t level, const char *subsystem, const char *line);

/**
 * Set where log lines go, for the whole process. After it returns the former function never runs again.
 * @param fn     NULL: stderr (or TPCOMM_LOG_FILE).
 * @param level  most detailed level wanted; the environment's TPCOMM_LOG wins over it.
 * Collective: no. Blocks: until running calls of the former function have returned. Threads: any, but not from inside
 * fn. Fails: INVALID_ARG (level), INVALID_STATE (called from inside fn).
 */
TPCOMM_API tpcomm_status_t tpcomm_log_set(tpcomm_log_fn fn, void *arg, int32_t level);

#ifdef __cplusplus
}
#endif
#endif
