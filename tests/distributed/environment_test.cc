#include "framework/distributed/environment.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

EnvironmentLookup lookup_of(const Variables& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found != variables.end() ? std::optional<std::string>(found->second) : std::nullopt;
  };
}

Environment detect(const Variables& variables, std::optional<int> requested = std::nullopt) {
  return detect_environment(lookup_of(variables), requested);
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

// What the launchers set for one rank of two hosts, or of one.
const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"GROUP_RANK", "1"},
                          {"MASTER_ADDR", "node1"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kPlain{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kMpich{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSrun{{"SLURM_PROCID", "2"},
                      {"SLURM_NTASKS", "3"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "1"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_JOB_ID", "1234567"},
                      {"SLURM_JOB_NAME", "train"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                      {"SLURM_STEP_NODELIST", "gpu[07-08]"}};

struct Accepted {
  std::string name;
  Variables variables;
  Launcher launcher;
  int rank, world_size, local_rank, local_world_size;
  std::string master_addr;
  int store_port;
};

class Accepts : public ::testing::TestWithParam<Accepted> {};

TEST_P(Accepts, WhatTheLauncherSays) {
  const Accepted& expected = GetParam();
  const Environment environment = detect(expected.variables);
  EXPECT_EQ(environment.launcher, expected.launcher) << launcher_name(environment.launcher);
  EXPECT_EQ(environment.rank, expected.rank);
  EXPECT_EQ(environment.world_size, expected.world_size);
  EXPECT_EQ(environment.local_rank, expected.local_rank);
  EXPECT_EQ(environment.local_world_size, expected.local_world_size);
  EXPECT_EQ(environment.master_addr, expected.master_addr);
  EXPECT_EQ(environment.store_port, expected.store_port);
  EXPECT_EQ(environment.single_host(), expected.world_size == expected.local_world_size);
}

INSTANTIATE_TEST_SUITE_P(
    Environment, Accepts,
    ::testing::Values(
        Accepted{"nothing", {}, Launcher::none, 0, 1, 0, 1, "127.0.0.1", kDefaultStorePort},
        Accepted{"empty_values",
                 {{"RANK", ""}, {"MASTER_PORT", ""}},
                 Launcher::none,
                 0,
                 1,
                 0,
                 1,
                 "127.0.0.1",
                 kDefaultStorePort},
        Accepted{"torchrun", kTorchrun, Launcher::torchrun, 5, 8, 1, 4, "node1", 29501},
        Accepted{"torchrun_without_agent_store", with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}),
                 Launcher::torchrun, 5, 8, 1, 4, "node1", 29500},
        Accepted{"own_port_first", with(kTorchrun, {{"LOCKSTEP_PORT", "4000"}}), Launcher::torchrun, 5, 8, 1, 4,
                 "node1", 4000},
        Accepted{"plain_variables", kPlain, Launcher::torchrun, 1, 2, 1, 2, "127.0.0.1", kDefaultStorePort},
        Accepted{"own_launcher", with(kPlain, {{"LOCKSTEP_LAUNCHER", "1"}, {"LOCKSTEP_PORT", "4001"}}),
                 Launcher::lockstep, 1, 2, 1, 2, "127.0.0.1", 4001},
        Accepted{"own_launcher_inside_srun",
                 with(kSrun, with(kPlain, {{"LOCKSTEP_LAUNCHER", "1"}, {"LOCKSTEP_PORT", "1"}})), Launcher::lockstep, 1,
                 2, 1, 2, "127.0.0.1", 1},
        Accepted{"open_mpi", kOpenMpi, Launcher::open_mpi, 1, 2, 1, 2, "127.0.0.1", kDefaultStorePort},
        Accepted{"open_mpi_with_port", with(kOpenMpi, {{"MASTER_PORT", "4002"}}), Launcher::open_mpi, 1, 2, 1, 2,
                 "127.0.0.1", 4002},
        Accepted{"open_mpi_inside_slurm", with(kSrun, with(kOpenMpi, {{"SLURM_PROCID", "0"}})), Launcher::open_mpi, 1,
                 2, 1, 2, "127.0.0.1", 19567},
        Accepted{"mpich_on_two_hosts", with(kMpich, {{"MASTER_ADDR", "head"}}), Launcher::mpich, 3, 4, 1, 2, "head",
                 kDefaultStorePort},
        Accepted{"srun", kSrun, Launcher::slurm, 2, 3, 0, 1, "gpu07", 19567},
        Accepted{"srun_with_port", with(kSrun, {{"MASTER_PORT", "4003"}}), Launcher::slurm, 2, 3, 0, 1, "gpu07", 4003},
        Accepted{"srun_that_speaks_pmi", with(kSrun, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}), Launcher::slurm, 2, 3, 0,
                 1, "gpu07", 19567},
        Accepted{"srun_repeated_counts",
                 with(kSrun, {{"SLURM_PROCID", "9"},
                              {"SLURM_NTASKS", "11"},
                              {"SLURM_NODEID", "2"},
                              {"SLURM_LOCALID", "1"},
                              {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                              {"SLURM_STEP_NODELIST", "rack[2-3]n[1,5],login"}}),
                 Launcher::slurm, 9, 11, 1, 3, "rack2n1", 19567},
        Accepted{"srun_older_names",
                 with(without(without(kSrun, "SLURM_STEP_TASKS_PER_NODE"), "SLURM_STEP_NODELIST"),
                      {{"SLURM_TASKS_PER_NODE", "2,1"}, {"SLURM_NODELIST", "a,b"}}),
                 Launcher::slurm, 2, 3, 0, 1, "a", 19567},
        Accepted{"srun_on_one_host",
                 with(without(kSrun, "SLURM_STEP_TASKS_PER_NODE"), {{"SLURM_NODEID", "0"}, {"SLURM_LOCALID", "2"}}),
                 Launcher::slurm, 2, 3, 2, 3, "127.0.0.1", 19567},
        Accepted{"torchrun_inside_srun", with(kSrun, kTorchrun), Launcher::torchrun, 5, 8, 1, 4, "node1", 29501},
        Accepted{"slurm_shell", with(kSrun, {{"SLURM_JOB_NAME", "bash"}}), Launcher::none, 0, 1, 0, 1, "127.0.0.1",
                 19567},
        Accepted{"slurm_batch_script", without(kSrun, "SLURM_STEP_ID"), Launcher::none, 0, 1, 0, 1, "127.0.0.1", 19567},
        Accepted{"salloc_shell",
                 {{"SLURM_JOB_ID", "42"}, {"SLURM_NTASKS", "4"}},
                 Launcher::none,
                 0,
                 1,
                 0,
                 1,
                 "127.0.0.1",
                 15042}),
    [](const auto& tested) { return tested.param.name; });

struct Refused {
  std::string name;
  Variables variables;
  std::vector<std::string> mentions;  // in the one line of the error
  std::optional<int> requested = std::nullopt;
};

class Refuses : public ::testing::TestWithParam<Refused> {};

TEST_P(Refuses, InOneLineThatNamesTheVariables) {
  try {
    detect(GetParam().variables, GetParam().requested);
    FAIL() << "was accepted";
  } catch (const std::invalid_argument& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos);
    for (const std::string& mention : GetParam().mentions) EXPECT_NE(text.find(mention), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Environment, Refuses,
    ::testing::Values(
        Refused{"two_launchers_ranks",
                with(kPlain, with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})),
                {"RANK=1", "OMPI_COMM_WORLD_RANK=0", "torchrun", "Open MPI"}},
        Refused{"two_launchers_sizes",
                with(kOpenMpi, with(kMpich, {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}})),
                {"OMPI_COMM_WORLD_SIZE=2", "PMI_SIZE=4"}},
        Refused{"plain_variables_against_srun", with(kSrun, kPlain), {"RANK=1", "SLURM_PROCID=2"}},
        Refused{"ranks_against_world", kOpenMpi, {"--ranks=3", "OMPI_COMM_WORLD_SIZE=2"}, 3},
        Refused{"rank_too_large", with(kPlain, {{"RANK", "2"}}), {"RANK=2", "WORLD_SIZE=2"}},
        Refused{"rank_negative", with(kPlain, {{"RANK", "-1"}}), {"RANK=-1", "WORLD_SIZE=2"}},
        Refused{"world_of_none", with(kPlain, {{"RANK", "0"}, {"WORLD_SIZE", "0"}}), {"RANK=0", "WORLD_SIZE=0"}},
        Refused{"local_rank_too_large", with(kPlain, {{"LOCAL_RANK", "2"}}), {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"}},
        Refused{"local_rank_above_rank", with(kPlain, {{"RANK", "0"}}), {"LOCAL_RANK=1", "RANK=0"}},
        Refused{
            "local_world_too_large", with(kPlain, {{"LOCAL_WORLD_SIZE", "3"}}), {"LOCAL_WORLD_SIZE=3", "WORLD_SIZE=2"}},
        Refused{"not_a_number", with(kPlain, {{"RANK", "one"}}), {"RANK", "one"}},
        Refused{"number_and_more", with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "2x"}}), {"OMPI_COMM_WORLD_SIZE", "2x"}},
        Refused{"too_large_for_a_number", with(kPlain, {{"WORLD_SIZE", "99999999999"}}), {"WORLD_SIZE", "99999999999"}},
        Refused{"no_world_size", without(kPlain, "WORLD_SIZE"), {"RANK", "WORLD_SIZE"}},
        Refused{"world_size_alone", {{"WORLD_SIZE", "4"}}, {"WORLD_SIZE=4", "RANK"}},
        Refused{"no_local_rank", without(kMpich, "MPI_LOCALRANKID"), {"PMI_SIZE", "MPI_LOCALRANKID"}},
        Refused{"hosts_without_address", kMpich, {"MASTER_ADDR"}},
        Refused{"srun_without_local_id", without(kSrun, "SLURM_LOCALID"), {"SLURM_PROCID=2", "SLURM_LOCALID"}},
        Refused{
            "srun_counts_too_few_nodes", with(kSrun, {{"SLURM_NODEID", "2"}}), {"SLURM_STEP_TASKS_PER_NODE", "2,1"}},
        Refused{"srun_counts_unreadable", with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "2(y3)"}}), {"2(y3)"}},
        Refused{"srun_list_unreadable", with(kSrun, {{"SLURM_STEP_NODELIST", "gpu[07-08"}}), {"gpu[07-08"}},
        Refused{"port_too_large", with(kPlain, {{"MASTER_PORT", "70000"}}), {"MASTER_PORT", "70000"}},
        Refused{"no_port_above", with(kTorchrun, {{"MASTER_PORT", "65535"}}), {"MASTER_PORT=65535", "LOCKSTEP_PORT"}}),
    [](const auto& tested) { return tested.param.name; });

TEST(Environment, RanksMayRepeatTheWorldSize) { EXPECT_EQ(detect(kOpenMpi, 2).world_size, 2); }

TEST(Environment, RanksWithoutALauncherAreTheCallersBusiness) { EXPECT_EQ(detect({}, 4).world_size, 1); }

TEST(Environment, OnlyRankZeroTakesTheListeningSocket) {
  const Variables first = with(kPlain, {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"LOCKSTEP_STORE_FD", "7"}});
  EXPECT_EQ(detect(first).store_fd, 7);
  EXPECT_EQ(detect(with(kPlain, {{"LOCKSTEP_STORE_FD", "7"}})).store_fd, -1);
}

}  // namespace
}  // namespace lockstep
