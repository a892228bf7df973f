#include "framework/distributed/environment.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/core/error.h"

namespace lockstep {
namespace {

class Variables {
 public:
  explicit Variables(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const char* name) const {
    std::optional<std::string> value = lookup_(name);
    if (value && value->empty()) value.reset();
    return value;
  }

  bool has(const char* name) const { return text(name).has_value(); }

  std::optional<int> number(const char* name) const {
    const std::optional<std::string> value = text(name);
    if (!value) return std::nullopt;
    int number = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    expect(error == std::errc() && stop == end, "environment: expected a whole number in {}, got {}", name, *value);
    return number;
  }

  std::optional<int> port(const char* name) const {
    const std::optional<int> value = number(name);
    expect(!value || (*value >= 1 && *value <= 65535), "environment: expected a port from 1 to 65535 in {}, got {}",
           name, value.value_or(0));
    return value;
  }

 private:
  const EnvironmentLookup& lookup_;
};

// What one launcher says, with the names it used for it.
struct Claim {
  Launcher launcher;
  std::array<const char*, 4> names;  // rank, world size, local rank, local world size
  std::array<int, 4> values{};

  int rank() const { return values[0]; }
  int world_size() const { return values[1]; }
  std::string shown(std::size_t i) const { return fmt::format("{}={}", names[i], values[i]); }
};

void check_range(const Claim& claim) {
  const auto [rank, size, local_rank, local_size] = claim.values;
  expect(size >= 1 && rank >= 0 && rank < size, "environment: expected 0 <= rank < world size, got {} with {}",
         claim.shown(0), claim.shown(1));
  expect(local_size >= 1 && local_size <= size,
         "environment: expected 1 <= local world size <= world size, got {} with {}", claim.shown(3), claim.shown(1));
  expect(local_rank >= 0 && local_rank < local_size,
         "environment: expected 0 <= local rank < local world size, got {} with {}", claim.shown(2), claim.shown(3));
  expect(local_rank <= rank, "environment: expected local rank <= rank, got {} with {}", claim.shown(2),
         claim.shown(0));
}

std::optional<Claim> read_claim(const Variables& variables, Launcher launcher, std::array<const char*, 4> names) {
  Claim claim{launcher, names};
  const char* present = nullptr;
  const char* absent = nullptr;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::optional<int> value = variables.number(names[i]);
    claim.values[i] = value.value_or(0);
    (value ? present : absent) = names[i];
  }
  if (present == nullptr) return std::nullopt;
  expect(absent == nullptr, "environment: {}={} is set but {} is not; {} sets {}, {}, {} and {} together", present,
         *variables.text(present), absent, launcher_name(launcher), names[0], names[1], names[2], names[3]);
  check_range(claim);
  return claim;
}

// A number of tasks for each node in SLURM's notation: "4", "2(x3),1".
int tasks_on_node(const std::string& name, std::string_view list, int node) {
  const auto bad = [&] {
    return std::invalid_argument(fmt::format(
        "environment: expected tasks per node such as 4 or 2(x3),1 for node {} in {}, got {}", node, name, list));
  };
  const auto read = [&](std::string_view& text) {
    int value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) throw bad();
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    return value;
  };
  std::string_view rest = list;
  int seen = 0;
  while (!rest.empty()) {
    const int tasks = read(rest);
    int repeat = 1;
    if (rest.starts_with("(x")) {
      rest.remove_prefix(2);
      repeat = read(rest);
      if (!rest.starts_with(")")) throw bad();
      rest.remove_prefix(1);
    }
    seen += repeat;
    if (node < seen) return tasks;
    if (!rest.starts_with(",")) break;
    rest.remove_prefix(1);
  }
  throw bad();
}

// First host of a SLURM list: "gpu[07-10,12],cpu1" gives gpu07.
std::string first_host(std::string_view list) {
  std::string host;
  for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const std::size_t close = list.find(']', i);
    expect(close != std::string_view::npos, "environment: expected a closing ] in the SLURM node list {}", list);
    const std::string_view range = list.substr(i + 1, close - i - 1);
    host += range.substr(0, range.find_first_of("-,"));
    i = close;
  }
  return host;
}

std::optional<std::string> first_of(const Variables& variables, std::initializer_list<const char*> names,
                                    std::string* found = nullptr) {
  for (const char* name : names) {
    if (std::optional<std::string> value = variables.text(name)) {
      if (found != nullptr) *found = name;
      return value;
    }
  }
  return std::nullopt;
}

// A task of srun. SLURM_PROCID is also set in a batch script and in an interactive shell, which are no tasks: the first
// has no step, the second has a job of the shell's name.
bool is_slurm_task(const Variables& variables) {
  const std::string job = variables.text("SLURM_JOB_NAME").value_or("");
  return variables.has("SLURM_PROCID") && variables.has("SLURM_STEP_ID") && job != "bash" && job != "interactive";
}

std::optional<Claim> read_slurm(const Variables& variables) {
  if (!is_slurm_task(variables)) return std::nullopt;
  const auto need = [&](const char* name) {
    const std::optional<int> value = variables.number(name);
    expect(value.has_value(), "environment: SLURM_PROCID={} is set but {} is not; srun sets both",
           *variables.text("SLURM_PROCID"), name);
    return *value;
  };
  Claim claim{Launcher::slurm, {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS"}};
  const int size = need("SLURM_NTASKS");
  std::string name;
  const auto per_node = first_of(variables, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}, &name);
  int local_size = size;
  if (per_node) {
    local_size = tasks_on_node(name, *per_node, variables.number("SLURM_NODEID").value_or(0));
    claim.names[3] = name == "SLURM_TASKS_PER_NODE" ? "SLURM_TASKS_PER_NODE" : "SLURM_STEP_TASKS_PER_NODE";
  } else {
    const int nodes = variables.number("SLURM_NNODES").value_or(1);
    expect(nodes == 1, "environment: SLURM_NNODES={} is set but SLURM_STEP_TASKS_PER_NODE is not; srun sets both",
           nodes);
  }
  claim.values = {need("SLURM_PROCID"), size, need("SLURM_LOCALID"), local_size};
  check_range(claim);
  return claim;
}

void expect_agreement(const Claim& a, const Claim& b) {
  for (const std::size_t i : {0u, 1u}) {
    expect(a.values[i] == b.values[i], "environment: {} says {} but {} says {}; unset the variables of one of them",
           launcher_name(a.launcher), a.shown(i), launcher_name(b.launcher), b.shown(i));
  }
}

std::optional<Claim> read_claims(const Variables& variables) {
  const std::optional<Claim> torchrun =
      read_claim(variables, Launcher::torchrun, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  // These two are certain to be the innermost launcher: whatever else is set started them, not their ranks.
  if (torchrun && variables.has("LOCKSTEP_LAUNCHER")) {
    Claim own = *torchrun;
    own.launcher = Launcher::lockstep;
    return own;
  }
  if (torchrun && variables.has("TORCHELASTIC_RUN_ID")) return torchrun;

  std::vector<Claim> claims;
  if (torchrun) claims.push_back(*torchrun);
  if (const auto open_mpi = read_claim(variables, Launcher::open_mpi,
                                       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE"})) {
    claims.push_back(*open_mpi);
  }
  // srun speaks PMI too, but without the local variables.
  const bool pmi_of_srun = is_slurm_task(variables) && !variables.has("MPI_LOCALRANKID");
  if (!pmi_of_srun) {
    if (const auto mpich =
            read_claim(variables, Launcher::mpich, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"})) {
      claims.push_back(*mpich);
    }
  }
  // mpirun inside a SLURM job starts its daemons, not its ranks, by srun: SLURM's numbers are then those of the
  // daemons.
  const bool under_mpi = !claims.empty() && claims.back().launcher != Launcher::torchrun;
  if (!under_mpi) {
    if (const auto slurm = read_slurm(variables)) claims.push_back(*slurm);
  }
  if (claims.empty()) return std::nullopt;
  for (const Claim& claim : claims) expect_agreement(claims.front(), claim);
  return claims.front();
}

std::string master_address(const Variables& variables, const Environment& environment) {
  if (const auto address = variables.text("MASTER_ADDR")) return *address;
  if (environment.single_host()) return "127.0.0.1";
  const auto nodes = first_of(variables, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  expect(nodes.has_value(),
         "environment: {} ranks run on several hosts but MASTER_ADDR is not set; set it to the host of rank 0",
         environment.world_size);
  return first_host(*nodes);
}

int store_port(const EnvironmentLookup& lookup, const Variables& variables) {
  if (const std::optional<int> named = named_store_port(lookup)) return *named;
  if (const std::optional<int> job = variables.number("SLURM_JOB_ID")) return 15000 + *job % 10000;
  return kDefaultStorePort;
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here changes the environment
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

const char* launcher_name(Launcher launcher) {
  switch (launcher) {
    case Launcher::none:
      return "no launcher";
    case Launcher::lockstep:
      return "lockstep --ranks";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "Open MPI";
    case Launcher::mpich:
      return "MPICH";
    case Launcher::slurm:
      return "srun";
  }
  return "?";
}

std::optional<int> named_store_port(const EnvironmentLookup& lookup) {
  const Variables variables(lookup);
  if (const std::optional<int> own = variables.port("LOCKSTEP_PORT")) return own;
  const std::optional<int> master = variables.port("MASTER_PORT");
  if (!master || variables.text("TORCHELASTIC_USE_AGENT_STORE") != "True") return master;
  expect(*master < 65535, "environment: MASTER_PORT={} leaves no port above it for the store; set LOCKSTEP_PORT",
         *master);
  return *master + 1;
}

Environment detect_environment(const EnvironmentLookup& lookup, std::optional<int> requested_ranks) {
  const Variables variables(lookup);
  Environment environment;
  const std::optional<Claim> claim = read_claims(variables);
  if (claim) {
    environment.launcher = claim->launcher;
    environment.rank = claim->values[0];
    environment.world_size = claim->values[1];
    environment.local_rank = claim->values[2];
    environment.local_world_size = claim->values[3];
    expect(!requested_ranks || *requested_ranks == claim->world_size(),
           "environment: --ranks={} but {} says {}; leave --ranks out under a launcher", requested_ranks.value_or(0),
           launcher_name(claim->launcher), claim->shown(1));
  }
  environment.master_addr = master_address(variables, environment);
  environment.store_port = store_port(lookup, variables);
  if (environment.rank == 0) environment.store_fd = variables.number("LOCKSTEP_STORE_FD").value_or(-1);
  return environment;
}

}  // namespace lockstep
