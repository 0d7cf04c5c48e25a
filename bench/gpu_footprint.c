/* SPDX-License-Identifier: Apache-2.0 */
/** What the kernels of a captured graph take of a GPU: read out of the graph, so for any library's kernels alike. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "gpu_driver.h"

typedef bench_handle_t handle_t;

enum { NODE_KERNEL = 0, FUNCTION_SHARED_BYTES = 1, FUNCTION_REGISTERS = 4 };

/** CUDA_KERNEL_NODE_PARAMS_v2 */
typedef struct {
    handle_t function;
    unsigned grid[3], block[3], shared_bytes;
    void **parameters, **extra;
    handle_t kernel, context;
} node_params_t;

/* In drivers for CUDA 12 and newer. */
#define GRAPH_LIST(X)                                                                                                  \
    X(nodes, "cuGraphGetNodes", (handle_t graph, handle_t * nodes, size_t * count))                                    \
    X(type, "cuGraphNodeGetType", (handle_t node, int *type))                                                          \
    X(params, "cuGraphKernelNodeGetParams_v2", (handle_t node, node_params_t * params))                                \
    X(function_of, "cuKernelGetFunction", (handle_t * function, handle_t kernel))                                      \
    X(attribute, "cuFuncGetAttribute", (int *value, int attribute, handle_t function))                                 \
    X(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                                        \
      (int *blocks, handle_t function, int threads, size_t shared_bytes))

#define POINTER(name, symbol, parameters) int(*name) parameters;
#define SYMBOL(name, symbol, parameters)  symbol,

static struct { GRAPH_LIST(POINTER) } cu;
static const char *const symbols[] = {GRAPH_LIST(SYMBOL)};
static int (*name_of)(const char **name, handle_t function); /* 12.3 and newer */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;

static void load(void) {
    void *library = bench_driver_library();
    loaded = library && bench_load_symbols(library, symbols, sizeof symbols / sizeof symbols[0], &cu);
    void *symbol = library ? dlsym(library, "cuFuncGetName") : NULL;
    memcpy(&name_of, &symbol, sizeof symbol);
}

static tpcomm_status_t read_kernel(handle_t node, bench_footprint_t *of) {
    node_params_t params;
    memset(&params, 0, sizeof params);
    tpcomm_status_t status = bench_driver_check(cu.params(node, &params), "a kernel in a graph");
    if (status != TPCOMM_OK) return status;
    uint32_t blocks = params.grid[0] * params.grid[1] * params.grid[2];
    of->kernels++;
    if (of->kernels > 1 && blocks <= of->blocks) return TPCOMM_OK;
    of->blocks = blocks;
    of->threads = params.block[0] * params.block[1] * params.block[2];
    of->registers = of->shared_bytes = of->blocks_per_sm = 0;
    of->name[0] = '\0';
    handle_t function = params.function;
    if (!function && cu.function_of(&function, params.kernel) != 0) return TPCOMM_OK;
    int value = 0, resident = 0;
    const char *name = NULL;
    if (cu.attribute(&value, FUNCTION_REGISTERS, function) == 0) of->registers = (uint32_t)value;
    if (cu.attribute(&value, FUNCTION_SHARED_BYTES, function) == 0)
        of->shared_bytes = (uint32_t)value + params.shared_bytes;
    if (cu.occupancy(&resident, function, (int)of->threads, params.shared_bytes) == 0 && resident > 0)
        of->blocks_per_sm = (uint32_t)resident;
    if (name_of && name_of(&name, function) == 0 && name) snprintf(of->name, sizeof of->name, "%s", name);
    return TPCOMM_OK;
}

tpcomm_status_t bench_graph_footprint(const bench_graph_t *graph, bench_footprint_t *footprint_p) {
    bench_footprint_t footprint;
    size_t count = 0;
    memset(&footprint, 0, sizeof footprint);
    pthread_once(&once, load);
    if (!loaded) return tpc_error(TPCOMM_ERR_UNSUPPORTED, "a driver that does not tell what a graph's kernels take");
    handle_t whole = bench_graph_handle(graph);
    tpcomm_status_t status = bench_driver_check(cu.nodes(whole, NULL, &count), "a graph's nodes");
    handle_t *nodes = calloc(count + 1, sizeof *nodes);
    if (!nodes) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    if (status == TPCOMM_OK) status = bench_driver_check(cu.nodes(whole, nodes, &count), "a graph's nodes");
    for (size_t i = 0; i < count && status == TPCOMM_OK; i++) {
        int type = -1;
        status = bench_driver_check(cu.type(nodes[i], &type), "a graph's node");
        if (status == TPCOMM_OK && type == NODE_KERNEL)
            status = read_kernel(nodes[i], &footprint);
        else if (status == TPCOMM_OK)
            footprint.others++;
    }
    free(nodes);
    if (status == TPCOMM_OK) *footprint_p = footprint;
    return status;
}
