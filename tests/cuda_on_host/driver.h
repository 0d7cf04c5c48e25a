/* SPDX-License-Identifier: Apache-2.0 */
/** The driver's functions, which are found by their names. */
#ifndef TPC_CUDA_ON_HOST_DRIVER_H
#define TPC_CUDA_ON_HOST_DRIVER_H

namespace host_cuda {

struct driver_row_t {
    const char *name; /**< NULL: the end */
    void *function;
};
extern const driver_row_t context_functions[], memory_functions[], stream_functions[];

/** NULL: there is none. */
void *driver_function(const char *name);

} // namespace host_cuda

#endif
