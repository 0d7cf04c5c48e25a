/* SPDX-License-Identifier: Apache-2.0 */
/* The instances of the kernels for any bits. */
#include "raw.cuh"

#include "launch.cuh"

extern "C" int tpc_ar_launch_raw(tpc_ar_form_t form, const tpc_ar_params_t *params, tpc_ar_shape_t shape,
                                 uint32_t element, tpcomm_stream_t stream) {
    const tpc_ar_params_t &p = *params;
    if (form.twoshot || form.coll == TPCOMM_REDUCE_SCATTER) return launch(raw_twoshot, shape, stream, p, form.twoshot);
    switch (form.coll) {
    case TPCOMM_BROADCAST:
        return launch(raw_oneshot<TPCOMM_BROADCAST>, shape, stream, p, element);
    case TPCOMM_ALL_GATHER:
        return launch(raw_oneshot<TPCOMM_ALL_GATHER>, shape, stream, p, element);
    default:
        return launch(raw_oneshot<TPCOMM_ALL_REDUCE>, shape, stream, p, element); /* a barrier moves nothing */
    }
}

extern "C" size_t tpc_ar_raw_kernels(const void **kernels) {
    size_t n = 0;
    kernels[n++] = (const void *)raw_oneshot<TPCOMM_ALL_REDUCE>;
    kernels[n++] = (const void *)raw_oneshot<TPCOMM_BROADCAST>;
    kernels[n++] = (const void *)raw_oneshot<TPCOMM_ALL_GATHER>;
    kernels[n++] = (const void *)raw_twoshot;
    return n;
}
