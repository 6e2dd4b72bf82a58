#pragma once

/// A connector over several others: the executable specification of its scheduler's half. The rules
/// of each function stand in contract/connectors/multi/multi_connector.h.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/check.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {

template <MultiConnectorChild Child>
class MultiConnector {
 public:
  MultiConnector(const Rules& rules, std::vector<Child> children)
      : rules_(rules), children_(std::move(children)) {
    KVFENCE_CHECK(!children_.empty(), "a MultiConnector has children");
  }

  std::span<Child> children() { return children_; }

  // Source: vLLM v0.19.0 multi_connector.py set_xfer_handshake_metadata.
  void set_xfer_handshake_metadata(const std::vector<typename Child::Handshake>& handshakes) {
    for (Child& child : children_) child.set_xfer_handshake_metadata(handshakes);
  }

  // Source: vLLM v0.23.0 multi_connector.py on_new_request.
  ErrorCode on_new_request(std::string_view request) {
    if (!rules_.connector_learns_new_requests) return ErrorCode::kNotInProfile;
    for (Child& child : children_) child.on_new_request(request);
    return ErrorCode::kNone;
  }

  // Source: vLLM v0.19.0 multi_connector.py get_num_new_matched_tokens.
  MatchedTokens get_num_new_matched_tokens(std::string_view request,
                                           std::uint32_t num_computed_tokens) {
    MatchedTokens first{0, false};
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      const MatchedTokens answer =
          children_[place].get_num_new_matched_tokens(request, num_computed_tokens);
      if (!answer.num_tokens) return {};
      if (*first.num_tokens > 0 || *answer.num_tokens == 0) continue;
      first = answer;
      chosen_[std::string(request)] = place;
    }
    return first;
  }

  // Source: vLLM v0.19.0 multi_connector.py update_state_after_alloc.
  void update_state_after_alloc(std::string_view request, const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) {
    const auto chosen = chosen_.find(std::string(request));
    const BlocksByGroup no_blocks(blocks.size());
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      const bool is_chosen = chosen != chosen_.end() && chosen->second == place;
      const bool gets_blocks = is_chosen || rules_.multi_connector_shares_blocks;
      children_[place].update_state_after_alloc(request, gets_blocks ? blocks : no_blocks,
                                                is_chosen ? num_external_tokens : 0);
    }
  }

  // Source: vLLM v0.19.0 multi_connector.py build_connector_meta.
  void build_connector_meta(MultiConnectorMetadata<typename Child::Metadata>& out) {
    out.metadata.clear();
    for (Child& child : children_) out.metadata.push_back(child.build_connector_meta());
    extra_async_saves(out.extra_async_saves);
    extra_async_saves_.clear();
  }

  // Source: vLLM v0.19.0 multi_connector.py update_connector_output.
  void update_connector_output(
      const AggregatedOutput& output,
      const MultiConnectorWorkerMetadata<typename Child::WorkerMetadata>* metadata) {
    for (std::uint32_t place = 0; place < num_children(); ++place) {
      const bool has_some = metadata && metadata->metadata[place].has_value();
      children_[place].update_connector_output(output,
                                               has_some ? &*metadata->metadata[place] : nullptr);
    }
  }

  // Source: vLLM v0.23.0 multi_connector.py request_finished_all_groups,
  // _aggregate_request_finished; v0.19.0 request_finished.
  ErrorCode request_finished(std::string_view request, const BlocksByGroup& blocks,
                             FinishedAnswer& out) {
    std::uint32_t num_saves = 0;
    std::optional<std::string> params;
    for (Child& child : children_) {
      FinishedAnswer answer = finish(child, request, blocks);
      if (answer.hold_blocks) ++num_saves;
      if (!answer.kv_transfer_params) continue;
      if (params) return ErrorCode::kSeveralParams;
      params = std::move(answer.kv_transfer_params);
    }
    if (num_saves > 1) extra_async_saves_[std::string(request)] = num_saves - 1;
    chosen_.erase(std::string(request));
    out.hold_blocks = num_saves > 0;
    out.kv_transfer_params = std::move(params);
    return ErrorCode::kNone;
  }

  // Source: vLLM v0.19.0 multi_connector.py take_events.
  void take_events(std::vector<typename Child::Event>& out) {
    for (Child& child : children_) child.take_events(out);
  }

  // Source: vLLM v0.19.0 multi_connector.py reset_cache.
  bool reset_cache() {
    bool has_failed = false;
    for (Child& child : children_) {
      if (child.reset_cache() == false) has_failed = true;
    }
    return !has_failed;
  }

  // Source: vLLM v0.19.0 multi_connector.py shutdown.
  bool shutdown() {
    bool has_failed = false;
    for (Child& child : children_) {
      if (!child.shutdown()) has_failed = true;
    }
    return !has_failed;
  }

  void chosen(std::vector<ChosenConnector>& out) const {
    out.clear();
    for (const auto& [request, place] : chosen_) out.push_back({request, place});
  }

  void extra_async_saves(std::vector<ExtraAsyncSaves>& out) const {
    out.clear();
    for (const auto& [request, saves] : extra_async_saves_) out.push_back({request, saves});
  }

  void add_to(StateHash& hash) const { hash.add_all(children_, chosen_, extra_async_saves_); }

 private:
  std::uint32_t num_children() const { return static_cast<std::uint32_t>(children_.size()); }

  bool all_support_hma() const {
    for (const Child& child : children_) {
      if (!child.supports_hma()) return false;
    }
    return true;
  }

  FinishedAnswer finish(Child& child, std::string_view request, const BlocksByGroup& blocks) const {
    if (rules_.multi_connector_hma && all_support_hma()) {
      return child.request_finished_all_groups(request, blocks);
    }
    KVFENCE_CHECK(blocks.size() == 1, "children that do not support HMA are for one group");
    return child.request_finished(request, blocks.front());
  }

  Rules rules_;
  std::vector<Child> children_;
  std::map<std::string, std::uint32_t> chosen_;             ///< request -> place
  std::map<std::string, std::uint32_t> extra_async_saves_;  ///< that no metadata carry yet
};

}  // namespace kvfence::reference
