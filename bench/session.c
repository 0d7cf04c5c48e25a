/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <stdlib.h>

#include "bench.h"
#include "lists.h"
#include "measure.h"
#include "ranks.h"

int bench_session(const bench_session_t *session, tpcomm_t *comm, bench_device_t *device) {
    bench_manifest_t *manifest = calloc(1, session->result_bytes); /* and what comes after it */
    tpcomm_info_t info = {.struct_size = sizeof info};
    int code = BENCH_EXIT_OK;
    (void)tpcomm_comm_info(comm, &info); /* a failure is told by rank, also before there is a manifest */
    tpcomm_status_t status = manifest ? TPCOMM_OK : tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    status = bench_agree(comm, status);
    if (status == TPCOMM_OK) status = bench_agree_on_options(comm, session->hash, session->argc, session->argv);
    if (status == TPCOMM_OK) status = bench_manifest_begin(comm, device, session->argc, session->argv, manifest);
    if (status == TPCOMM_OK) status = session->run(session->job, comm, device, manifest);
    if (status == TPCOMM_OK) status = bench_manifest_end(comm, device, manifest);
    if (status == TPCOMM_OK) status = tpcomm_finalize(comm);
    if (status != TPCOMM_OK)
        code = bench_rank_failed(session->command, info.rank, comm, status);
    else if (info.rank == 0)
        code = session->judge(session->job, manifest);
    if (manifest && session->drop) session->drop(manifest);
    free(manifest);
    return code;
}
