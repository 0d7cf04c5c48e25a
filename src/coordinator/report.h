/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a rank tells of its groups to people and tools: the flight dump (JSON, tpcomm-flight/1), the status page (text,
 * and JSON, tpcomm-status/1). Any thread; reads what others write, waits for nobody but the world's lock.
 */
#ifndef TPC_COORDINATOR_REPORT_H
#define TPC_COORDINATOR_REPORT_H

#include "base/emit.h"
#include "coordinator/world.h"

/** A flight dump of all groups of this rank. cause: name of the group whose failure asked for it; may be NULL. */
void tpc_report_flight(tpc_world_t *world, const char *cause, tpc_emit_t *emit);

/** One world of a status answer, as an object without a schema. */
void tpc_report_status_json(tpc_world_t *world, tpc_emit_t *emit);
void tpc_report_status_text(tpc_world_t *world, tpc_emit_t *emit);

/** Write a flight dump to path: whole or not at all, by renaming. Fails: IO, NO_MEMORY. */
tpcomm_status_t tpc_report_write(tpc_world_t *world, const char *cause, const char *path);

/**
 * A group of this name has failed: write this rank's dump into TPCOMM_FLIGHT_DIR, if that is set. The caller has
 * claimed its `dumped`. Never fails: what went wrong is logged; this thread's text stays.
 */
void tpc_report_failure(tpc_world_t *world, const char *cause);

#endif
