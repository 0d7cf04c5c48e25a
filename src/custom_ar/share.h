/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What kernels of another folder take of a group's custom_ar state: its memory, so that their calls stand in one order
 * with those of custom_ar's own kernels, and epochs and slots serve them all.
 */
#ifndef TPC_CUSTOM_AR_SHARE_H
#define TPC_CUSTOM_AR_SHARE_H

#include "backend/backend.h"
#include "custom_ar/ar_abi.h"

/** Bytes of a slot in such a group; 0: the limit leaves no room. Pure: gate, capacity and allocation come from it. */
size_t tpc_ar_slot_bytes(const tpc_agreed_t *agreed);
/** Its ring, from the same function; blocks 0: there is none. And all that a rank's device workspace takes. */
tpc_ar_ring_t tpc_ar_ring(const tpc_agreed_t *agreed);
size_t tpc_ar_device_bytes(const tpc_agreed_t *agreed);
/** The least that a workspace's limit must be for a group of size ranks to have any path. */
size_t tpc_ar_least_bytes(int32_t size);

/** What is the same in every launch of a group of two ranks or more. state: of tpc_custom_ar_backend. */
const tpc_ar_params_t *tpc_ar_shared_params(const void *state);

/** Before a launch of such a kernel: what it is, for the text of a MISMATCH. */
void tpc_ar_say_call(const void *state, const tpc_ar_params_t *params, const tpc_flight_record_t *record);

/**
 * Load a kernel, so that it is not loaded while another waits for a peer, and say how many of its blocks, of `threads`
 * working threads, this group may launch: all that wait for each other are resident together. Fails: NO_TRANSPORT (no
 * image for this device), DEVICE.
 */
tpcomm_status_t tpc_ar_grid_limit(const void *state, const void *kernel, int32_t threads, int32_t *blocks_p);

#endif
