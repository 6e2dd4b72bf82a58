#include "scenarios/replay/replay_reports.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "properties/report/number_text.h"
#include "scenarios/replay/plot.h"

namespace kvfence {
namespace {

// Adds overloads.
using kvfence::row;

/// A part of the prompts.
std::string row(const char* name, std::uint64_t num_tokens, const EngineReplayResult& result) {
  return row(name, with_thousands(num_tokens) + " tokens, " +
                       percent(ratio(num_tokens, result.prompt_tokens)));
}

std::string row(const char* name, const CopiesMade& copies, std::size_t block_bytes) {
  std::string text =
      with_thousands(copies.transfers) + " transfers, " + with_thousands(copies.blocks) + " blocks";
  if (block_bytes > 0) text += ", " + with_thousands(copies.blocks * block_bytes) + " bytes";
  return row(name, text);
}

std::uint64_t num_computed_of(const EngineReplayResult& result) {
  return result.prompt_tokens - result.gpu_hit_tokens - result.cpu_hit_tokens;
}

}  // namespace

std::string to_summary(const EngineReplayResult& result, std::size_t block_bytes) {
  std::string out = row("requests", requests_text(result));
  out += row("as without a cache", with_thousands(result.completed) + " of them, " +
                                       with_thousands(result.output_tokens) + " tokens generated");
  out += row("steps", with_thousands(result.steps) + ", and " + with_thousands(result.idle_steps) +
                          " without tokens");
  out += row("prompts", with_thousands(result.prompt_tokens) + " tokens");
  out += row("  in GPU memory", result.gpu_hit_tokens, result);
  out += row("  in CPU memory", result.cpu_hit_tokens, result);
  out += row("  computed", num_computed_of(result), result);
  out += row("stored", result.stored, block_bytes);
  out += row("loaded", result.loaded, block_bytes);
  out += row("preemptions", with_thousands(result.preemptions));
  out += row("blocks in use", with_thousands(result.peak_referenced) + " at most");
  return out;
}

std::string to_json(const EngineReplayResult& result, std::size_t block_bytes) {
  const nlohmann::ordered_json object = {
      {"requests", result.requests},
      {"completed", result.completed},
      {"refused", result.refused},
      {"never_fit", result.never_fit},
      {"steps", result.steps},
      {"idle_steps", result.idle_steps},
      {"prompt_tokens", result.prompt_tokens},
      {"output_tokens", result.output_tokens},
      {"gpu_hit_tokens", result.gpu_hit_tokens},
      {"cpu_hit_tokens", result.cpu_hit_tokens},
      {"computed_tokens", num_computed_of(result)},
      {"stores", result.stored.transfers},
      {"stored_blocks", result.stored.blocks},
      {"stored_bytes", result.stored.blocks * block_bytes},
      {"loads", result.loaded.transfers},
      {"loaded_blocks", result.loaded.blocks},
      {"loaded_bytes", result.loaded.blocks * block_bytes},
      {"preemptions", result.preemptions},
      {"peak_referenced", result.peak_referenced},
  };
  return object.dump();
}

std::string to_csv(const EngineReplayResult& result) {
  std::string out =
      "request,prompt_tokens,output_tokens,gpu_hit_tokens,cpu_hit_tokens,preemptions\n";
  for (std::size_t number = 0; number < result.replayed.size(); ++number) {
    const ReplayedRequest& request = result.replayed[number];
    out += formatted("%zu,%u,%u,%u,%u,%u\n", number, request.prompt_tokens, request.output_tokens,
                     request.gpu_hit_tokens, request.cpu_hit_tokens, request.preemptions);
  }
  return out;
}

}  // namespace kvfence
