#include "properties/engine/multi/generator.h"

#include <algorithm>
#include <utility>

#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/core/check.h"
#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine::multi {
namespace {

bool is_valid(const Config& config) {
  return static_cast<bool>(EngineTarget::prepare(config, {}, {}));
}

simple::Record draw_simple(Choices& choices) {
  simple::Record record;
  record.num_cpu_blocks = 3 + choices.below(10);
  record.lazy_offload = choices.once_in(3);
  return record;
}

void draw_files_record(Choices& choices, ConnectorList& children) {
  if (choices.once_in(3)) {
    children.emplace_back(files::DecodeBenchRecord{1 + choices.below(2), std::nullopt});
  } else {
    children.emplace_back(files::ExampleRecord{1 + choices.below(2)});
  }
}

}  // namespace

Config Generator::draw_config(Choices& choices) {
  Config config = offloading::Generator::draw_config(choices);
  MultiRecord multi;
  multi.children.push_back(config.connectors->front());
  const std::uint32_t kind = choices.below(3);
  if (kind != 1) multi.children.emplace_back(draw_simple(choices));
  if (kind != 0) draw_files_record(choices, multi.children);
  std::rotate(
      multi.children.begin(),
      multi.children.begin() + choices.below(static_cast<std::uint32_t>(multi.children.size())),
      multi.children.end());
  config.connectors->clear();
  config.connectors->emplace_back(std::move(multi));
  // Neither does upstream's scheduler keep files right under priorities, nor does a second pool
  // without a cache do anything.
  if (kind != 0) config.async_scheduling = false;
  if (!is_valid(config)) config.policy = "fcfs";
  if (!is_valid(config)) config.enable_caching = true;
  if (!is_valid(config)) config.groups = {full(config.hash_block_size)};
  if (!is_valid(config)) {
    // What only one of the others takes.
    auto& children = std::get<MultiRecord>(config.connectors->front().as_variant()).children;
    std::erase_if(children, [](const ConnectorRecord& child) {
      return !std::holds_alternative<offloading::Record>(child.as_variant());
    });
  }
  return config;
}

Generator::Generator(const Config& config, Choices& choices)
    : config_(config), offloading_(config, choices) {
  has_simple_ = config.connector<simple::Record>() != nullptr;
  keeps_files_ = config.connector<files::ExampleRecord>() != nullptr;
  beside_in_ = 2 + choices.below(3);
  fault_in_ = choices.once_in(3) ? 8 : 48;
}

Command Generator::next(Choices& choices, const Observation& now, const World& world) {
  if (queued_) return *std::exchange(queued_, std::nullopt);
  Command command = offloading_.next(choices, now, world);
  // Ranks work on one KV cache with layers of it: what others take for a salt or an adapter, files
  // do not know.
  if (auto* added = std::get_if<AddRequest>(&command); added && keeps_files_) {
    added->cache_salt.reset();
  }
  if (!choices.once_in(beside_in_)) return command;
  std::optional<Command> beside = draw_beside(choices, world);
  if (!beside) return command;
  queued_ = std::move(command);
  return *beside;
}

std::optional<Command> Generator::draw_beside(Choices& choices, const World& world) const {
  if (keeps_files_ && (!has_simple_ || choices.once_in(3))) return draw_files(choices, world);
  if (!has_simple_) return std::nullopt;
  simple::AdvanceCopy copy;
  copy.rank = choices.below(config_.ranks);
  copy.store = choices.once_in(2);
  if (choices.once_in(6)) copy.progress = TransferProgress::kPart;
  return copy;
}

/// Mostly another engine that writes the prompt of a request, whole or not.
std::optional<Command> Generator::draw_files(Choices& choices, const World& world) const {
  const std::uint32_t num_layers =
      config_.ranks * config_.connector<files::ExampleRecord>()->num_layers;
  if (choices.once_in(fault_in_)) {
    return files::FailNextFile{choices.below(num_layers), pick(choices, kStorageOperations)};
  }
  if (world.entries().empty()) return std::nullopt;
  const std::string& name = pick(choices, world.entries()).name;
  const std::vector<TokenId>& prompt = world.requests().find(name)->spec().tokens;
  const std::uint32_t block_size = config_.hash_block_size;
  const std::size_t num_blocks = prompt.size() / block_size;
  if (num_blocks == 0) return std::nullopt;
  const std::size_t length =
      block_size * (1 + choices.below(static_cast<std::uint32_t>(num_blocks)));
  std::vector<TokenId> tokens(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(length));
  switch (choices.below(8)) {
    case 0:
      return files::RemoveEntry{std::move(tokens)};
    case 1:
      return files::RemoveFile{std::move(tokens), choices.below(num_layers)};
    case 2:
      return files::TruncateFile{std::move(tokens), choices.below(num_layers)};
    default:
      return files::WriteEntry{std::move(tokens), num_layers};
  }
}

}  // namespace kvfence::engine::multi
