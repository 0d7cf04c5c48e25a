/* SPDX-License-Identifier: Apache-2.0 */
/* Check that what we declare of NCCL is what its header declares: types of all functions, values, the config's layout.
 */
#include <nccl.h>

#define TPC_NCCL_TYPES
#define tpc_nccl_comm_t   ncclComm_t
#define tpc_nccl_result_t ncclResult_t
#define tpc_nccl_dtype_t  ncclDataType_t
#define tpc_nccl_op_t     ncclRedOp_t
#define tpc_nccl_id_t     ncclUniqueId
#define tpc_nccl_config_t ncclConfig_t
#include "nccl_backend/api.h"

#define CHECK_FUNCTION(name, symbol, needed, result, arguments)                                                        \
    _Static_assert(_Generic(&symbol, result(*) arguments : 1, default : 0), #symbol " has another type");
TPC_NCCL_LIST(CHECK_FUNCTION)

#define CHECK_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs " has another value")
CHECK_VALUE(TPC_NCCL_SUCCESS, ncclSuccess);
CHECK_VALUE(TPC_NCCL_IN_PROGRESS, ncclInProgress);
CHECK_VALUE(TPC_NCCL_SUM, ncclSum);
CHECK_VALUE(TPC_NCCL_PROD, ncclProd);
CHECK_VALUE(TPC_NCCL_MAX, ncclMax);
CHECK_VALUE(TPC_NCCL_MIN, ncclMin);
CHECK_VALUE(TPC_NCCL_AVG, ncclAvg);
CHECK_VALUE(TPC_NCCL_INT8, ncclInt8);
CHECK_VALUE(TPC_NCCL_UINT8, ncclUint8);
CHECK_VALUE(TPC_NCCL_INT32, ncclInt32);
CHECK_VALUE(TPC_NCCL_UINT32, ncclUint32);
CHECK_VALUE(TPC_NCCL_INT64, ncclInt64);
CHECK_VALUE(TPC_NCCL_UINT64, ncclUint64);
CHECK_VALUE(TPC_NCCL_FLOAT16, ncclFloat16);
CHECK_VALUE(TPC_NCCL_FLOAT32, ncclFloat32);
CHECK_VALUE(TPC_NCCL_FLOAT64, ncclFloat64);
CHECK_VALUE(TPC_NCCL_BFLOAT16, ncclBfloat16);

_Static_assert(sizeof(ncclUniqueId) == 128, "the id has another size");
_Static_assert(offsetof(struct tpc_nccl_config, magic) == offsetof(ncclConfig_t, magic), "config");
_Static_assert(offsetof(struct tpc_nccl_config, version) == offsetof(ncclConfig_t, version), "config");
_Static_assert(offsetof(struct tpc_nccl_config, blocking) == offsetof(ncclConfig_t, blocking), "config");

int main(void) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    return config.magic == TPC_NCCL_CONFIG_MAGIC ? 0 : 1;
}
