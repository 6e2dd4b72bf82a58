#include "scenarios/command/publication.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "scenarios/command/output.h"

namespace kvfence {

Publication::Publication(const audit::EventStreamOptions& options, Profile profile,
                         HashAlgorithm hash_algorithm)
    : has_truth_(!options.truth_file.empty()) {
  if (options.publisher.endpoint.empty()) return;
  audit::EventStreamOptions of_profile = options;
  if (options.release != audit::WireRelease::kV033) {
    of_profile.release =
        profile == Profile::kV019 ? audit::WireRelease::kV019 : audit::WireRelease::kV023;
  }
  stream_ = required(audit::EventStream::open(of_profile, hash_algorithm));
  if (const audit::Publisher* publisher = stream_->publisher()) {
    const bool replays = !options.publisher.replay_endpoint.empty();
    std::printf("publishing on %s%s%s\n", publisher->endpoint().c_str(),
                replays ? ", replay on " : "", replays ? publisher->replay_endpoint().c_str() : "");
    std::fflush(stdout);
  }
  fail_on(stream_->start());
}

EventsTap Publication::tap() const {
  if (!stream_) return {};
  return {[stream = stream_.get()](std::uint64_t time_us, const std::vector<KVCacheEvent>& events,
                                   const std::vector<BlockHash>& keys) {
            return stream->take(time_us, events, keys);
          },
          has_truth_};
}

void Publication::finish() {
  if (stream_ && !stream_->finish()) fail_on(stream_->error());
}

std::string Publication::to_text() const {
  if (!stream_) return "";
  std::string text = "published " + std::to_string(stream_->num_messages()) + " messages, " +
                     std::to_string(stream_->num_events()) + " events";
  for (const audit::Injection& injection : stream_->injections()) {
    text += "\ninjected " + std::string(kvfence::to_text(injection.kind)) + " at message " +
            std::to_string(injection.sequence);
  }
  return text + "\n\n";
}

std::string Publication::to_json() const {
  auto object = nlohmann::ordered_json::object();
  if (!stream_) return object.dump();
  auto injected = nlohmann::ordered_json::array();
  for (const audit::Injection& injection : stream_->injections()) {
    injected.push_back(
        {{"kind", kvfence::to_text(injection.kind)}, {"message", injection.sequence}});
  }
  object["published"] = {{"messages", stream_->num_messages()},
                         {"events", stream_->num_events()},
                         {"injected", std::move(injected)}};
  return object.dump();
}

}  // namespace kvfence
