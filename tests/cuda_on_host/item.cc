/* SPDX-License-Identifier: Apache-2.0 */
/* What depends on what, and who waits for it. */
#include "runtime.h"

namespace host_cuda {

std::mutex lock;
static std::condition_variable &ended = *new std::condition_variable;

item_p item_new(work_t work, int device) {
    item_p item = std::make_shared<item_t>();
    item->work = std::move(work);
    item->device = device;
    return item;
}

void item_follow(const item_p &item, const item_p &before, bool early) {
    if (before == nullptr || before->done) return;
    early = early && before->work.kind == work_t::KERNEL && item->work.kind == work_t::KERNEL;
    if (!early || !before->released) item->start_left++;
    item->before_left++;
    before->next.push_back({item, early});
}

static void finish(item_p item);

static void may_start(const item_p &item) {
    if (item->work.kind == work_t::NOTHING)
        finish(item);
    else
        device_enqueue(item);
}

static void one_less_to_start(const item_p &item) {
    if (--item->start_left == 0) may_start(item);
}

/* A chain of empty items must not become a chain of calls. */
static void finish(item_p first) {
    static std::vector<item_p> &list = *new std::vector<item_p>;
    list.push_back(std::move(first));
    if (list.size() > 1) return; /* called by the loop below */
    for (size_t i = 0; i < list.size(); i++) {
        item_p item = list[i];
        item->done = true;
        item->end_ns = now_ns();
        item->work = work_t{item->work.kind, nullptr, {}};
        std::vector<successor_t> next = std::move(item->next);
        for (const successor_t &successor : next) {
            bool was_last = --successor.item->before_left == 0;
            if (!successor.early || !item->released) one_less_to_start(successor.item);
            if (was_last && successor.item->work_ended) finish(successor.item);
        }
    }
    list.clear();
    ended.notify_all();
}

void item_submit(const item_p &item) {
    item->before_left--;
    one_less_to_start(item);
}

void item_released(const item_p &item) {
    if (item->released) return;
    item->released = true;
    for (size_t i = 0; i < item->next.size(); i++)
        if (item->next[i].early) one_less_to_start(item->next[i].item);
}

void item_work_ended(const item_p &item) {
    item->work_ended = true;
    if (item->before_left == 0) finish(item);
}

void item_wait(std::unique_lock<std::mutex> &held, const item_p &item) {
    if (item != nullptr) ended.wait(held, [&] { return item->done; });
}

} // namespace host_cuda
