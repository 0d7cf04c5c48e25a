/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rows.h"

#include <string.h>

#include "base/status.h"
#include "base/text.h"

static uint32_t form_of_buffers(const tpcomm_rms_norm_t *norm) {
    uint64_t hidden = (uint64_t)norm->hidden, room_stride = norm->sum != NULL ? norm->sum_stride : norm->out_stride;
    bool has_room = norm->sum != NULL || norm->out != NULL;
    bool packed = norm->in_stride == hidden && (!has_room || room_stride == hidden);
    return (has_room ? 0u : TPC_ROWS_NO_ROOM) | (packed ? 0u : TPC_ROWS_STRIDED) |
           (norm->residual != NULL ? TPC_ROWS_RESIDUAL : 0u);
}

tpc_rows_t tpc_rows_of(const tpcomm_rms_norm_t *norm, bool unequal) {
    tpc_rows_t rows = {.hidden = norm->hidden};
    rows.form = (uint32_t)norm->quant << 4 | (uint32_t)norm->weight_dtype << 8;
    if (unequal)
        rows.form |= TPC_ROWS_UNEQUAL;
    else if (norm->tokens > 0)
        rows.form |= form_of_buffers(norm);
    memcpy(&rows.eps, &norm->eps, sizeof rows.eps);
    memcpy(&rows.bias, &norm->weight_bias, sizeof rows.bias);
    return rows;
}

const char *tpc_rows_text(const tpc_rows_t *rows, tpcomm_coll_t coll, char *text_p, size_t bytes) {
    static const char *const quants[] = {"", " f8_tensor", " f8_token"};
    text_p[0] = '\0';
    if (rows->hidden == 0) return text_p;
    size_t used = tpc_text_append(text_p, bytes, 0, " hidden %d", rows->hidden);
    if (!tpc_coll_norms(coll)) return text_p;
    float eps, bias;
    memcpy(&eps, &rows->eps, sizeof eps);
    memcpy(&bias, &rows->bias, sizeof bias);
    uint32_t quant = rows->form >> 4 & 0xFu;
    tpc_text_append(text_p, bytes, used, " weight %s eps %.9g bias %.9g%s%s%s%s",
                    tpcomm_dtype_name((tpcomm_dtype_t)(rows->form >> 8 & 0xFFu)), (double)eps, (double)bias,
                    (rows->form & TPC_ROWS_RESIDUAL) != 0 ? " residual" : "", quant < 3 ? quants[quant] : " quant ?",
                    (rows->form & TPC_ROWS_STRIDED) != 0 ? " strided" : "",
                    (rows->form & TPC_ROWS_NO_ROOM) != 0 ? " without out and sum" : "");
    return text_p;
}
