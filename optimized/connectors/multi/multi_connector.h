#pragma once

/// MultiConnector: the scheduler's half of a connector over several others. The rules of every
/// operation stand in contract/connectors/multi/multi_connector.h. No threads: a connector belongs
/// to one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "optimized/base/request_numbers.h"

namespace kvfence::optimized {

template <MultiConnectorChild Child>
class MultiConnector {
 public:
  using Metadata = MultiConnectorMetadata<typename Child::Metadata>;
  using WorkerMetadata = MultiConnectorWorkerMetadata<typename Child::WorkerMetadata>;

  /// What is allocated later is as much as the most requests had at once, names of requests beyond
  /// a string's own storage, and what the children and the caller take.
  MultiConnector(const Rules& rules, std::vector<Child> children)
      : rules_(rules), children_(std::move(children)) {
    KVFENCE_CHECK(!children_.empty(), "a MultiConnector has children");
    all_groups_ = rules_.multi_connector_hma &&
                  std::all_of(children_.begin(), children_.end(),
                              [](const Child& child) { return child.supports_hma(); });
  }

  std::span<Child> children() { return children_; }

  void set_xfer_handshake_metadata(const std::vector<typename Child::Handshake>& handshakes) {
    for (Child& child : children_) child.set_xfer_handshake_metadata(handshakes);
  }

  ErrorCode on_new_request(std::string_view request) {
    if (!rules_.connector_learns_new_requests) return ErrorCode::kNotInProfile;
    for (Child& child : children_) child.on_new_request(request);
    return ErrorCode::kNone;
  }

  MatchedTokens get_num_new_matched_tokens(std::string_view request,
                                           std::uint32_t num_computed_tokens) {
    MatchedTokens first{0, false};
    std::uint32_t chosen = num_children();
    bool again = false;
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      const MatchedTokens answer =
          children_[place].get_num_new_matched_tokens(request, num_computed_tokens);
      if (!answer.num_tokens) {
        again = true;
        break;
      }
      if (*first.num_tokens > 0 || *answer.num_tokens == 0) continue;
      first = answer;
      chosen = place;
    }
    if (chosen < num_children()) chosen_.set(request, chosen);
    if (again) return {};
    return first;
  }

  void update_state_after_alloc(std::string_view request, const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) {
    const std::uint32_t* chosen = chosen_.find(request);
    no_blocks_.resize(blocks.size());
    const BlocksByGroup& of_others = rules_.multi_connector_shares_blocks ? blocks : no_blocks_;
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      if (chosen && *chosen == place) {
        children_[place].update_state_after_alloc(request, blocks, num_external_tokens);
      } else {
        children_[place].update_state_after_alloc(request, of_others, 0);
      }
    }
  }

  void build_connector_meta(Metadata& out) {
    out.metadata.clear();
    for (Child& child : children_) out.metadata.push_back(child.build_connector_meta());
    extra_async_saves(out.extra_async_saves);
    extra_async_saves_.clear();
  }

  void update_connector_output(const AggregatedOutput& output, const WorkerMetadata* metadata) {
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      const auto* own = metadata ? part_of(*metadata, place) : nullptr;
      children_[place].update_connector_output(output, own);
    }
  }

  ErrorCode request_finished(std::string_view request, const BlocksByGroup& blocks,
                             FinishedAnswer& out) {
    out.hold_blocks = false;
    out.kv_transfer_params.reset();
    std::uint32_t num_saves = 0;
    for (Child& child : children_) {
      FinishedAnswer answer = finish(child, request, blocks);
      num_saves += answer.hold_blocks;
      out.hold_blocks = num_saves > 0;
      if (answer.kv_transfer_params) {
        if (out.kv_transfer_params) return ErrorCode::kSeveralParams;
        out.kv_transfer_params = std::move(answer.kv_transfer_params);
      }
    }
    if (num_saves > 1) extra_async_saves_.set(request, num_saves - 1);
    chosen_.erase(request);
    return ErrorCode::kNone;
  }

  void take_events(std::vector<typename Child::Event>& out) {
    for (Child& child : children_) child.take_events(out);
  }

  bool reset_cache() {
    bool all_done = true;
    for (Child& child : children_) {
      all_done &= child.reset_cache().value_or(true);
    }
    return all_done;
  }

  bool shutdown() {
    bool all_done = true;
    for (Child& child : children_) {
      all_done &= child.shutdown();
    }
    return all_done;
  }

  void chosen(std::vector<ChosenConnector>& out) const {
    out.clear();
    chosen_.for_each([&](std::string_view request, std::uint32_t place) {
      ChosenConnector& chosen = out.emplace_back();
      chosen.request = request;
      chosen.child = place;
    });
  }

  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const {
    out.clear();
    extra_async_saves_.for_each([&](std::string_view request, std::uint32_t saves) {
      ExtraAsyncSaves& extra = out.emplace_back();
      extra.request = request;
      extra.saves = saves;
    });
  }

  void add_to(StateHash& hash) const { hash.add_all(children_, chosen_, extra_async_saves_); }

 private:
  std::uint32_t num_children() const { return static_cast<std::uint32_t>(children_.size()); }

  FinishedAnswer finish(Child& child, std::string_view request, const BlocksByGroup& blocks) const {
    if (all_groups_) return child.request_finished_all_groups(request, blocks);
    KVFENCE_CHECK(blocks.size() == 1, "children that do not support HMA are for one group");
    return child.request_finished(request, blocks.front());
  }

  const typename Child::WorkerMetadata* part_of(const WorkerMetadata& metadata,
                                                std::uint32_t place) const {
    const auto& part = metadata.metadata[place];
    return part ? &*part : nullptr;
  }

  Rules rules_;
  std::vector<Child> children_;
  bool all_groups_ = false;           ///< what request_finished hands on
  RequestNumbers chosen_;             ///< places
  RequestNumbers extra_async_saves_;  ///< that no metadata carry yet
  BlocksByGroup no_blocks_;           ///< of the call that runs
};

}  // namespace kvfence::optimized
