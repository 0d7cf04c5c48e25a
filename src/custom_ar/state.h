/* SPDX-License-Identifier: Apache-2.0 */
/** A rank's state of a group: what the files of this folder share, and no other sees. */
#ifndef TPC_CUSTOM_AR_STATE_H
#define TPC_CUSTOM_AR_STATE_H

#include "backend/backend.h"
#include "custom_ar/launch.h"
#include "custom_ar/said.h"
#include "health/pulse.h"
#include "health/watchdog.h"
#include "peer_mem/device_memory.h"

/** In host memory that all ranks of a group share. Behind it, where no kernel looks: what each rank says it calls. */
typedef struct {
    tpc_ar_report_t reports[TPCOMM_MAX_RANKS];
    _Atomic uint64_t users[TPCOMM_MAX_RANKS]; /* peer_mem/device_memory.h */
    tpc_pulse_t pulse;
} tpc_ar_control_t;

/** Numbers of working threads that a block may have. */
enum { TPC_AR_THREADS_COUNT = 4 };

typedef struct {
    tpc_backend_group_t group;
    size_t slot_bytes;
    tpc_device_memory_t memory;
    tpc_ar_control_t *control; /* in host memory that all ranks share */
    void *pinned;              /* the workspace's header as pinned; NULL: not */
    tpc_ar_params_t params;    /* what does not change from call to call */
    int32_t blocks_max[TPC_AR_KINDS][TPC_AR_THREADS_COUNT];
    int32_t ring_blocks; /* that a ring's launch may have on every rank; 0: no ring */
    int32_t parts;       /* kernels that may be resident on this device at once */
    bool shares_device;
    bool early;   /* launches may be dependent ones (wait.cuh, begin_call and end_call) */
    int timer_fd; /* beats the pulse; -1: none */
    tpc_watch_t *watch;
} tpc_ar_state_t;

/** A rank's table of what it says it calls. */
tpc_ar_said_t *tpc_ar_said_by(const tpc_ar_state_t *state, int32_t rank);

/** How many blocks each kernel's launch may have in this group; loads them all. Fails: as tpc_ar_grid_limit. */
tpcomm_status_t tpc_ar_size_grids(tpc_ar_state_t *state, const tpc_cuda_facts_t *facts);

/** The shape of a launch that carries so many bytes; a ring's is equal on all ranks. */
tpc_ar_shape_t tpc_ar_shape(const tpc_ar_state_t *state, tpc_ar_form_t form, const tpc_ar_params_t *params,
                            uint64_t bytes);

/** A kernel of any rank that gave up has written its report: make it the group's failure, with a text. */
void tpc_ar_poll(tpc_ar_state_t *state);

/** What this rank's kernels have noted of their waits, as it is at this moment. */
tpc_waits_t tpc_ar_waits(const tpc_ar_state_t *state, tpcomm_path_t path);
uint64_t tpc_ar_times_last(const tpc_ar_state_t *state, int32_t rank);

#endif
