#pragma once

/// Which templates of the harness are compiled once a target, instead of in each program that
/// drives the target: they are most of the time that such a program takes to build. A target's
/// `<target>_checks.h` ends with KVFENCE_COMPILED_ONCE; a target that has no such line, as a test's
/// own, is compiled where it is used.

#include "properties/core/campaign.h"
#include "properties/core/lockstep.h"
#include "properties/core/shrink.h"

/// Two parts, each compiled by a source of its own. KVFENCE_INSTANTIATE_<part>(extern template,
/// Target) declares, KVFENCE_INSTANTIATE_<part>(template, Target) compiles.
///
/// What each command of a run passes through.
#define KVFENCE_INSTANTIATE_RUN(TEMPLATE, TARGET)                                              \
  TEMPLATE class Lockstep<TARGET>;                                                             \
  TEMPLATE std::optional<Divergence> run_scenario(Lockstep<TARGET>&, const Scenario<TARGET>&); \
  TEMPLATE std::optional<InputError> draw_overridden_config<TARGET>(                           \
      Choices&, const std::vector<Field>&, TARGET::Config&);                                   \
  TEMPLATE std::optional<Divergence> run_configured_episode(Lockstep<TARGET>&, Choices&,       \
                                                            std::size_t, Scenario<TARGET>&);   \
  TEMPLATE std::optional<Divergence> run_episode(Lockstep<TARGET>&, Choices&, std::size_t,     \
                                                 Scenario<TARGET>&);                           \
  TEMPLATE CampaignResult<TARGET> run_campaign(                                                \
      Implementation<TARGET>&, Implementation<TARGET>&, const CampaignOptions&,                \
      const std::function<bool(const CampaignProgress&)>&);

/// What files, pipes and the shrinker pass through.
#define KVFENCE_INSTANTIATE_TEXT(TEMPLATE, TARGET)                                             \
  TEMPLATE const DeclaredStruct& declared_struct<TARGET::Config>();                            \
  TEMPLATE const DeclaredStruct& declared_struct<TARGET::Observation>();                       \
  TEMPLATE Parsed<Scenario<TARGET>> scenario_from_document(const Document&, std::string_view); \
  TEMPLATE Document to_document(const Scenario<TARGET>&);                                      \
  TEMPLATE Parsed<TARGET::Command> command_from_line(const Line&, std::string_view);           \
  TEMPLATE Line to_line(const TARGET::Command&);                                               \
  TEMPLATE ShrinkResult<TARGET> shrink(Scenario<TARGET>,                                       \
                                       const std::function<bool(const Scenario<TARGET>&)>&,    \
                                       const ShrinkOptions&);

#define KVFENCE_COMPILED_ONCE(TARGET)              \
  KVFENCE_INSTANTIATE_RUN(extern template, TARGET) \
  KVFENCE_INSTANTIATE_TEXT(extern template, TARGET)
