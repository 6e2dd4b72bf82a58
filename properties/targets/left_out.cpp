#include "properties/targets/left_out.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "contract/core/lists.h"
#include "properties/core/left_out.h"
#include "properties/engine/never_together.h"

namespace kvfence {
namespace {

/// What the contract refuses; its headers say so. Rows of kind `missing` are planned.
const LeftOutRow kRefused[] = {
    {"refused",
     "a hit in the GPU's cache, of several groups under a connector with workers, without "
     "external_blocks_after_hits",
     "upstream may take the hit of one group for what another one loads, and asserts (vllm#33775; "
     "fixed in 0.33.0)",
     "engine/offloading/refusals/hit_of_one_group_for_another.kvs",
     "config connectors=[(offloading)] profile=v0.23 groups=[(full block_size=4) (sliding "
     "block_size=4 window=4)]\n"
     "add_request id=A tokens=[1]\n"},
    {"refused",
     "such a hit with two kinds of full attention, or eagle by group and Mamba, where it may "
     "overshoot",
     "upstream computes into a block that others find, or continues after one that nobody computed",
     "engine/offloading/refusals/hits_that_overshoot.kvs",
     "config connectors=[(offloading)] profile=v0.23 external_blocks_after_hits=true "
     "groups=[(full block_size=4) (full block_size=2)] hash_block_size=2\n"
     "add_request id=A tokens=[1]\n"},
    {"refused", "a reset of running requests under an OffloadingConnector",
     "upstream does not report the requests that a reset preempts, so copies go on reading their "
     "blocks",
     "engine/offloading/left_out/reset_of_running_requests.kvs",
     "config connectors=[(offloading)] profile=v0.23\n"
     "reset_prefix_cache reset_running_requests=true\n"},
    {"refused", "a reset of the connector, over secondary tiers",
     "upstream forgets the transfers under way, but not what they reserve (vllm#44541)",
     "engine/offloading/refusals/tiers.kvs",
     "config connectors=[(offloading spec_name=TieringOffloadingSpec num_tiers=1)] profile=v0.23\n"
     "reset_prefix_cache reset_connector=true\n"},
    {"refused", "invalid blocks, of several groups",
     "upstream raises: it unpacks one group (vllm-ascend#10930)",
     "engine/scheduler/refusals/single_group_only.kvs",
     "config connectors=[(scripted)] groups=[(full block_size=4) (sliding block_size=4 window=4)]\n"
     "add_request id=A tokens=[1]\n"
     "schedule\n"
     "update invalid_blocks=[1]\n"},
    {"refused", "a store that fails, under v0.19", "upstream asserts that it has succeeded",
     "engine/offloading/refusals/not_in_profile.kvs",
     "config connectors=[(offloading transfers_may_fail=true num_cpu_blocks=4)] profile=v0.19 "
     "num_gpu_blocks=9 hash_block_size=2 groups=[(full block_size=2)]\n"
     "add_request id=A tokens=[1 2 3 4 5]\n"
     "schedule\n"
     "update\n"
     "schedule\n"
     "update\n"
     "advance_transfer job=0 progress=failed\n"},
    {"refused", "more than two steps in flight",
     "upstream cannot distinguish outputs from before and after a preemption",
     "engine/scheduler/preemption/output_of_a_preempted_request.kvs",
     "config assembly=scheduler max_concurrent_batches=3\n"},
    {"refused", "drafts with two steps in flight, without async_scheduling",
     "upstream plans a negative number of tokens",
     "engine/scheduler/async_scheduling/drafts_are_placeholders.kvs",
     "config assembly=scheduler max_concurrent_batches=2 num_speculative_tokens=1\n"},
    {"refused", "Mamba in align mode under a connector, under v0.19", "upstream asserts",
     "engine/scheduler/mamba/chunks_end_with_a_block.kvs",
     "config connectors=[(scripted)] groups=[(mamba block_size=4 align=true)] profile=v0.19\n"},
    {"refused", "a Mamba group in eagle_groups, under a SimpleCPUOffloadConnector",
     "upstream's hit in CPU memory may overshoot, and blocks are loaded into the places of others",
     "kv_cache/mamba/hit_of_no_token_has_a_block.kvs",
     "config connectors=[(simple)] profile=v0.23 use_eagle=true num_speculative_tokens=1 "
     "groups=[(full block_size=4) (mamba block_size=4)] eagle_groups=[1]\n"},
    {"refused", "priority over connectors that keep files",
     "upstream's victim may have been served, and what nobody computed is written to files",
     "engine/scheduler/priority/victim_gives_its_tokens_back.kvs",
     "config connectors=[(example)] policy=priority\n"},
    {"refused", "a load of a window that fails, on a device",
     "upstream goes on as if the null blocks before the failed ones had been computed",
     "engine/offloading/left_out/a_load_of_a_window_that_fails.kvs",
     "config assembly=offloading_on_device profile=v0.23 groups=[(sliding block_size=4 window=4)] "
     "hash_block_size=4\n"
     "fail_next stream=load fault=copy\n"},
    {"refused", "a salt or adapter over connectors that keep files",
     "upstream names files after tokens alone: a request would get the KV of another one",
     "engine/synchronous/left_out/a_salt.kvs",
     "config connectors=[(example)]\nadd_request id=A tokens=[1] cache_salt=\"s\"\n"},
    {"refused", "a window after drafts that are planned ahead, on a device",
     "upstream gives the window's blocks back as if the drafts in flight were accepted, and the "
     "tokens show it (fixed in 0.33.0)",
     "engine/offloading/left_out/a_window_after_rejected_drafts.kvs",
     "config device=virtual groups=[(sliding block_size=4 window=4)] async_scheduling=true "
     "num_speculative_tokens=1\n"},
    {"refused", "copies that fail on a device, with a SimpleCPUOffloadConnector",
     "the error ends upstream's thread that enqueues copies: no transfer ends after it",
     "engine/on_device/refusals/copies_that_fail.kvs",
     "config connectors=[(simple)] device=virtual\nfail_next stream=load fault=copy\n"},
    {"refused", "a device that is lost, in an assembly",
     "upstream's engine exits: nothing catches the exception of an event query (target worker has "
     "this case)",
     "engine/offloading_on_device/refusals/a_lost_device.kvs",
     "config assembly=offloading_on_device profile=v0.23\nfail_next stream=load fault=sticky\n"},
    {"refused", "reads over NIXL that fail, with a window or several groups",
     "upstream reports no invalid block, and the request continues on blocks that were not read",
     "engine/prefill_decode/refusals/groups.kvs",
     "config assembly=prefill_decode profile=v0.23 groups=[(full block_size=4) (sliding "
     "block_size=4 window=4)]\n"},
    {"refused", "a window over NIXL, under v0.19",
     "upstream's producer gives back the first block of a window that is to be read",
     "engine/prefill_decode/refusals/groups.kvs",
     "config connectors=[(nixl deadline=0)] engines=2 profile=v0.19 groups=[(sliding block_size=4 "
     "window=4)]\n"},
    {"refused", "a window over NIXL, on a device",
     "upstream computes the last token of a prompt that was read with a window that may lack a "
     "token, and the tokens show it",
     "engine/prefill_decode/left_out/a_window_short_of_a_token.kvs",
     "config connectors=[(nixl deadline=0)] engines=2 device=virtual profile=v0.23 "
     "groups=[(sliding block_size=4 window=4)]\n"},
    {"refused", "several tokens of a request for a consumer, with a window",
     "upstream's producer gives back what is to be read, and other blocks are read",
     "engine/prefill_decode/refusals/groups.kvs",
     "config connectors=[(nixl deadline=0)] engines=2 profile=v0.23 groups=[(sliding block_size=4 "
     "window=4)]\nadd_request id=A tokens=[1] do_remote_decode=true max_tokens=2\n"},
    {"missing", "two children of one kind under a MultiConnector, or nested ones", "not modelled",
     "", "config connectors=[(multi children=[(simple) (simple)])]\n"},
    {"missing", "Mamba over NIXL", "not modelled", "",
     "config assembly=prefill_decode profile=v0.23 groups=[(mamba block_size=4)]\n"},
    {"missing", "tiers on a device", "not modelled", "",
     "config connectors=[(offloading spec_name=TieringOffloadingSpec num_tiers=1)] device=virtual "
     "profile=v0.23\n"},
    {"missing", "connectors that keep files, on a device", "not modelled", "",
     "config connectors=[(example)] device=virtual\n"},
    {"missing", "Mamba on a device", "not modelled", "",
     "config assembly=on_device connectors=[] groups=[(mamba block_size=4)]\n"},
    {"missing", "tiers beside NIXL", "not modelled", "",
     "config connectors=[(multi children=[(nixl) (offloading spec_name=TieringOffloadingSpec "
     "num_tiers=1)])] engines=2 profile=v0.23\n"},
    {"missing", "a request id that is used again when its request is gone",
     "not modelled: upstream's front end makes each id unique, unless "
     "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION is set; so nothing checks what a connector keeps under "
     "a name for too long",
     "",
     "config assembly=scheduler\nadd_request id=A tokens=[1]\nfinish_requests requests=[A]\n"
     "schedule\nupdate\nadd_request id=A tokens=[1]\n"},
    {"missing", "a forward of several layers, with loads and saves during its layers",
     "no connector with a device waits for a layer: upstream's leave wait_for_layer_load and "
     "save_kv_layer empty; a race with a forward is found whatever its layers",
     "", "config assembly=on_device num_layers=2\n"},
};

}  // namespace

std::vector<LeftOutRow> left_out() {
  std::vector<LeftOutRow> rows;
  std::vector<std::string_view> parts = parts_with_rows();
  keep_each_once(parts);
  for (const std::string_view part : parts) {
    for (const NeverTogether& pair : never_together(part)) {
      const std::string both = std::string(pair.first) + (pair.second.empty() ? "" : " with ") +
                               std::string(pair.second);
      rows.push_back({pair.scenario.empty() ? "same" : "pair",
                      std::string(part) + ": " + both,
                      pair.why,
                      pair.scenario,
                      {}});
    }
  }
  for (const LeftOut* place : LeftOut::all()) {
    rows.push_back({place->by() == LeftOut::By::kRule ? "rule" : "draw",
                    std::string(place->name()),
                    place->why(),
                    place->scenario(),
                    {}});
  }
  rows.insert(rows.end(), std::begin(kRefused), std::end(kRefused));
  return rows;
}

std::string left_out_document() {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kKinds = {{
      {"pair", "Values of configurations that are not drawn together"},
      {"draw", "What generators do not draw"},
      {"rule", "What rules pass over"},
      {"refused", "What the contract refuses because upstream goes wrong"},
      {"missing", "What upstream does and the contract cannot express yet"},
      {"same", "Values that mean the same as drawn ones"},
  }};
  const std::vector<LeftOutRow> rows = left_out();
  std::string text =
      "# What is left out, and why\n\n"
      "Generated, like `kvfence list left-out`, from declarations beside the code that leaves it "
      "out; `targets/left_out_test.cpp`\nkeeps it up to date. A scenario, below "
      "`scenarios/cases/`, shows why.\n";
  for (const auto& [kind, title] : kKinds) {
    const auto count = std::ranges::count(rows, kind, &LeftOutRow::kind);
    text += "\n## " + std::string(title) + " (" + std::to_string(count) + ")\n\n" +
            "| what | why | scenario |\n|---|---|---|\n";
    for (const LeftOutRow& row : rows) {
      if (row.kind != kind) continue;
      text += "| " + row.name + " | " + std::string(row.why) + " | " +
              (row.scenario.empty() ? "" : "`" + std::string(row.scenario) + "`") + " |\n";
    }
  }
  return text;
}

}  // namespace kvfence
