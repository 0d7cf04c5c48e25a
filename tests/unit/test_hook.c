/* SPDX-License-Identifier: Apache-2.0 */
/* Check that test hooks fire at their point and rank, count passings, give values, and never pass over a misspelt one.
 */
#include <pthread.h>

#include "base/clock.h"
#include "base/hook.h"
#include "check.h"

static void use(const char *hooks) {
    CHECK_EQ(setenv("TPCOMM_TEST_HOOKS", hooks, 1), 0);
    tpc_hook_reload();
}

static void *pass_points(void *arg) {
    int32_t rank = *(int32_t *)arg;
    for (int i = 1; i <= 100; i++) CHECK_STATUS(tpc_hook("p", rank), i < 50 ? TPCOMM_OK : TPCOMM_ERR_NO_MEMORY);
    return NULL;
}

int main(void) {
    CHECK_EQ(unsetenv("TPCOMM_TEST_HOOKS"), 0);
    CHECK_OK(tpc_hook("p", 0));
    CHECK_EQ(tpc_hook_value("n", 5), 5);

    use("fail@p:1");
    CHECK_OK(tpc_hook("p", 0));
    CHECK_OK(tpc_hook("q", 1));
    CHECK_STATUS(tpc_hook("p", 1), TPCOMM_ERR_NO_MEMORY);
    CHECK_ERROR_HAS("hook: p");
    CHECK_STATUS(tpc_hook("p", 1), TPCOMM_ERR_NO_MEMORY);

    use("fail@p:*:3;set@n:18446744073709551615;fail@q:0;delay@r:2:20");
    for (int rank = -1; rank < 3; rank++) {
        CHECK_OK(tpc_hook("p", rank));
        CHECK_OK(tpc_hook("p", rank));
        CHECK_STATUS(tpc_hook("p", rank), TPCOMM_ERR_NO_MEMORY);
        CHECK_STATUS(tpc_hook("p", rank), TPCOMM_ERR_NO_MEMORY);
    }
    CHECK(tpc_hook_value("n", 5) == UINT64_MAX);
    CHECK_EQ(tpc_hook_value("p", 5), 5);
    CHECK_STATUS(tpc_hook("q", 0), TPCOMM_ERR_NO_MEMORY);
    uint64_t before = tpc_clock_ns();
    CHECK_OK(tpc_hook("r", 2));
    CHECK(tpc_clock_ns() - before >= 20000000);

    static const char *const wrong[] = {"fail",
                                        "fail@",
                                        "fail@p",
                                        "fail@p:x",
                                        "fail@p:-1",
                                        "fail@p:0:x",
                                        "fail@p:0:1:2",
                                        "delay@p:0",
                                        "set@n",
                                        "set@n:x",
                                        "set@n:",
                                        "fial@p:0",
                                        "fail@:0",
                                        "fail@p:0;;x",
                                        "set@n:1:2",
                                        "delay@p:0:1e3",
                                        "fail@p:99999999999",
                                        "set@n:0x1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        use(wrong[i]);
        if (tpc_hook("anything", 0) != TPCOMM_ERR_INVALID_ARG) FAIL("\"%s\" was taken", wrong[i]);
    }
    use("");
    CHECK_OK(tpc_hook("p", 0));

    /* Counted apart by rank, so that a point's N-th passing is the same however threads run. */
    use("fail@p:*:50");
    pthread_t threads[4];
    int32_t ranks[4] = {0, 1, 2, 3};
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, pass_points, &ranks[i]), 0);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    return 0;
}
