/* SPDX-License-Identifier: Apache-2.0 */
/**
 * For how long a job has been awake, in a word that its ranks on one host share: each says from time to time that it
 * runs, and a long silence of all of them is a job that was stopped (by a signal, a debugger, a machine that is
 * paused). For whoever measures a wait by a clock that goes on meanwhile: a GPU's.
 */
#ifndef TPC_HEALTH_PULSE_H
#define TPC_HEALTH_PULSE_H

#include <stdatomic.h>
#include <stdint.h>

#define TPC_PULSE_MS 100u /* from one beat to the next of each */

/**
 * High half: the last beat; low half: the first one behind the last silence (TPC_STOPPED_GAP_NS); both in milliseconds,
 * which wrap. Their difference is how long the job has been awake. 0: no beat yet.
 */
typedef _Atomic uint64_t tpc_pulse_t;

/** A sign of life, now_ns by tpc_clock_ns. Any thread of any of the processes. */
void tpc_pulse_beat(tpc_pulse_t *pulse, uint64_t now_ns);

#endif
