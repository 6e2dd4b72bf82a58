#pragma once

/// Which templates of the harness are compiled once a target, in compiled_once.cpp, instead of in
/// each program that drives the target: they are most of the time that such a program takes to
/// build. A target's `<target>_checks.h` ends with KVFENCE_COMPILED_ONCE; a target that has no such
/// line, as a test's own, is compiled where it is used.

#include "properties/campaign.h"
#include "properties/lockstep.h"
#include "properties/shrink.h"

/// KVFENCE_INSTANTIATE(extern template, Target) declares, KVFENCE_INSTANTIATE(template, Target)
/// compiles.
#define KVFENCE_INSTANTIATE(TEMPLATE, TARGET)                                                    \
  TEMPLATE Parsed<Scenario<TARGET>> scenario_from_document(const Document&, std::string_view);   \
  TEMPLATE Document to_document(const Scenario<TARGET>&);                                        \
  TEMPLATE Parsed<TARGET::Command> command_from_line(const Line&, std::string_view);             \
  TEMPLATE Line to_line(const TARGET::Command&);                                                 \
  TEMPLATE std::vector<Field> to_fields(const TARGET::Observation&);                             \
  TEMPLATE std::optional<InputError> assign_fields(TARGET::Observation&,                         \
                                                   const std::vector<Field>&, std::string_view); \
  TEMPLATE std::optional<Divergence> first_difference(                                           \
      const TARGET::Observation&, const TARGET::Observation&, std::size_t, const SymbolOf&);     \
  TEMPLATE std::optional<Divergence> matches(                                                    \
      const std::vector<Field>&, const TARGET::Observation&, std::size_t, const ResolveSymbol&); \
  TEMPLATE class Lockstep<TARGET>;                                                               \
  TEMPLATE std::optional<Divergence> run_scenario(Lockstep<TARGET>&, const Scenario<TARGET>&);   \
  TEMPLATE std::optional<InputError> override_config<TARGET>(TARGET::Config&,                    \
                                                             const std::vector<Field>&);         \
  TEMPLATE std::optional<InputError> draw_overridden_config<TARGET>(                             \
      Choices&, const std::vector<Field>&, TARGET::Config&);                                     \
  TEMPLATE std::optional<Divergence> run_configured_episode(Lockstep<TARGET>&, Choices&,         \
                                                            std::size_t, Scenario<TARGET>&);     \
  TEMPLATE std::optional<Divergence> run_episode(Lockstep<TARGET>&, Choices&, std::size_t,       \
                                                 Scenario<TARGET>&);                             \
  TEMPLATE CampaignResult<TARGET> run_campaign(                                                  \
      Implementation<TARGET>&, Implementation<TARGET>&, const CampaignOptions&,                  \
      const std::function<bool(const CampaignProgress&)>&);                                      \
  TEMPLATE ShrinkResult<TARGET> shrink(Scenario<TARGET>,                                         \
                                       const std::function<bool(const Scenario<TARGET>&)>&,      \
                                       const ShrinkOptions&);

#define KVFENCE_COMPILED_ONCE(TARGET) KVFENCE_INSTANTIATE(extern template, TARGET)
