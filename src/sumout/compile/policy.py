"""Every size at which something is compiled or evaluated in another way, with its unit and the reason for it.

Times were measured on two CPU cores, and are told at more length in `docs/decisions/`. Where no measurement is named,
the number is a judgement. This file imports nothing. Statistical thresholds (when a chain counts as stuck,
how long a trajectory is) stand beside what they judge, and limits of the analysis (how long a loop is followed) in
`jaxpr/` and `structure/`, which come before anything is compiled.
"""

# How a function is compiled.

# Sites of a program. Up to here compiling takes longer than running: chains run alone, starts are searched for in one
# call, and what runs briefly is not optimised. The Markov model of 16 steps had its first draws after 2.8 s instead of
# 3.9; on the one of 1,000 × 8 draws of chains that run alone take 1.2 times as long.
FEW_SITES = 200
# Elements of the largest array that is computed with. Up to here XLA's newer emitters, which take half as long again to
# compile, gain little: draws of spike and slab take 1.07 times as long without them, on 6,000 × 5 numbers 1.4 times.
MEDIUM_ARRAY = 16_384
# Elements of all arrays computed in all calls of what runs seldom. Compiled quickly they take about a nanosecond each,
# lightly optimised a quarter or less: up to here quick code is done before the other is compiled. Post-processing of
# 4,000 draws, compiling and running, quickly and lightly: a Markov model (5 · 10⁷) 0.19 + 0.05 s and 0.46 + 0.02 s, a
# change point (1.3 · 10⁸) 0.19 + 0.22 and 0.48 + 0.07, site occupancy (3 · 10⁸) 0.08 + 0.23 and 0.17 + 0.03,
# capture–recapture (3 · 10⁹) 0.3 + 3.2 and 1.0 + 0.8.
LITTLE_WORK = 2 * 10**8
# Likewise, from where on it is worth to be compiled as well as what runs all the time; a judgement.
MUCH_WORK = 4 * 10**9
# Elements of the largest array in a function that is compiled in one piece. Larger reductions and products lose the
# kernels of a library: with 24,000 elements draws took 1.8 times as long.
ONE_PIECE_ARRAY = 4096
# Elements of all arguments of a function in one piece, as they are copied with every call.
ONE_PIECE_ARGUMENTS = 2**22

# What a compiled function has room for.

CHUNK_DRAWS = 1000  # draws of a chain in one call of the loop; room for more only costs memory
CHUNK_BYTES = 2**20  # bytes that the draws of one chain may take there
BLOCK = 256  # draws of all chains that are post-processed in one call, at most
# Bytes of these draws and of what is computed from them: a draw of a million sites is a block of its own.
BLOCK_BYTES = 2**25
# Elements of a discrete site from which its draws are recorded in the smallest integers that hold them. A million
# binary sites, 4,000 draws: 4 GB instead of 16.
LARGE_SITE = 10_000
WAITING_BYTES = 2**27  # bytes of draws that wait to be post-processed
COLUMN_ELEMENTS = 2**24  # elements of the indicators of discrete values that are judged at a time, to bound memory
# What a run usually has, to foretell how much work there is in all.
USUAL_DRAWS = 4_000  # of all chains
USUAL_CHAINS = 4

# What is written out instead of looped over: compiled code grows with it.

# Values that a logsumexp adds one by one. XLA's own reduction over a short axis is several times slower on CPUs, and
# does not fuse with what is around.
WRITTEN_OUT_VALUES = 4
# Values of a site whose weights are handled in one pass over the columns; with more, each stage is a pass of its own,
# or XLA would compute the table again in every stage.
ONE_PASS_VALUES = 8
# Values whose running sum is written out for a draw of many columns, where 64 values of 100 take 3.9 µs instead of 8.5;
# and of a single one, as the joint values of a small component are: 64 take 0.2 µs either way, written out in 460
# equations.
WRITTEN_OUT_DRAW, WRITTEN_OUT_LONE_DRAW = 64, 8
# Levels of an elimination tree. It was 32 while a loop cost more than a short level; now 16 levels of 3 × 3 take 8 to
# 10 µs either way, and written out the loop around them took 8 s of CPU to compile instead of 4.
WRITTEN_OUT_LEVELS = 8
# Blocks of sites of one kind in a sweep; more are stacked and scanned over: a clique has as many as it has sites.
WRITTEN_OUT_BLOCKS = 4
# Sites of a path that is eliminated from one end to the other, not from both: its levels are then plain slices of the
# factors; part of what halved the cost of a sum over the Markov model of 16 steps.
PATH_FROM_ONE_END = 32

# Bytes of the tables of a level up to which XLA compiles a loop over levels in one piece, as it touches no more than a
# kilobyte. Two chains of 100 sites, side by side, each step a table of 4 × 4: 20 µs, and 130 if eliminated from both
# ends, two tables a level.
SMALL_TABLE = 72

# How factors are summed by site, and parts of a table added up.

SMALL_FACTOR = 64  # elements of factor arrays that are handled together with other small ones
FEW_RUNS = 8  # slices that are taken one by one; with more, a box or a gather
# Likewise of small factor arrays, of which each owner has one element. A clique of nine sites has eight for its pairs:
# value and gradient take 6.5 µs by slices and by a gather, and 0.9 and 0.6 s to compile.
FEW_SMALL_RUNS = 4
# Times as many elements that a box of an array may have as are wanted of it. The others are masked, which is cheap; to
# look elements up takes as long as some dozen of those, and the derivative of that, a scatter, some 25 ns each.
BOX_WASTE = 16
WASTE = 8  # times as many elements that a gather may have by padding before sums by segment are cheaper
# Entries of all parts of a table that are added up by a product with zeros and ones. Five arrays of 12 axes took 0.1 ms
# for a table of 4,096 entries, and XLA computed it four times; so it takes 13 µs.
SELECTED_ENTRIES = 64
FEW_AXES = 4  # of a table whose parts are added up as they are

# What is summed out, and how.

# Entries of one table, and of all tables of components that cost much more to sum than to draw.
MOST_ENTRIES = 2**22
# Joint values of a factor of three sites or more: the program is evaluated at each of them.
MOST_JOINT_VALUES = 4096
# Sites of a component with loops: finding an order of elimination takes time.
MOST_LOOPY_SITES = 50_000
# Sites of a graph for which the order counts the edges that an elimination would add: that takes time, too.
MOST_FOR_FILL = 100
# Entries of tables that take as long as a level takes however small it is.
LEVEL_COST = 2048
# Times as many levels as the longest chain has that a layout by arrays may have: levels follow on each other.
GRID_WASTE = 4
# Entries of a table of two slices. Five chains of 200 steps: 2.4 ms site by site, 1.4 in slices of 1,024 entries.
SLICE_ENTRIES = 4096
# Joint values of a slice from which sums take products instead of exponentials: 2.7 and 7 times faster at 16 and 32,
# while logarithms were 1.4 times faster at 8.
PRODUCT_VALUES = 16
# Terms of all products of matrices, levels × states³, up to which a path of states that is the same for all columns is
# summed by these instead of level by level.
PRODUCT_TERMS = 2**14
# Times as many entries that tables may have which are one for all of many chains side by side: sums are then products
# of matrices. Value and gradient of 20 chains of 9 counts of 135 values took 7 ms instead of 99. A judgement, as such
# tables are still laid out for each chain to find the most probable z.
MATRIX_GAIN = 8
# By how much the largest products along a chain shrink from level to level, where they are to be used: their range is
# 71 nats in single and 672 in double precision. A judgement; where it is too low, sums are taken twice.
NATS_A_LEVEL = 1.5
# Times the entries of one sweep that a sum over z may fill: it saves more than that in draws.
SUM_WORTH = 16
# Values up to which a site is drawn by Gibbs or summed whatever its factors cost.
MOST_GIBBS_VALUES = 256
# Entries (values × elements of factors, of all elements of a site) of the tables of a site with more values than that;
# beyond, they cost more than they are worth. 5,000 values × 100 data: 3.6 ms for value and gradient, × 400: 21 ms.
MOST_WIDE_ENTRIES = 2**20
# Values of a change point whose tables are running totals, and elements for each such site that may still be computed
# for every value.
MOST_CHANGE_POINT_VALUES, MOST_BESIDE = 4096, 8
# Entries (values × terms) from which running totals are used, if so many times fewer are left: K + T instead of K · T.
# The coal model (111 × 109): 5 µs instead of 27 for value and gradient.
RUNNING_TOTAL_ENTRIES, RUNNING_TOTAL_GAIN = 1024, 4
# Values of a change point from which the log likelihood of a datum takes two evaluations, not one for each value.
MANY_VALUES = 16
# Entries of tables that are filled at every draw for the log likelihood of data whose sites are drawn, or of which
# several meet in a datum: 4,000 draws of so many take some seconds.
LIKELIHOOD_ENTRIES = 2**18
# Sites that meet in a quadratic form, which holds a matrix of their number squared.
MOST_QUADRATIC_SITES = 2048
# Evaluations of the density that cost as much as its gradient.
GRADIENT_COST = 3
# Entries (states times values of a site) of all levels of a path of states, for one group of sites: they are listed
# when a program is read. A run length over 500 steps has 250,000.
MOST_STATE_ENTRIES = 2**20
# Joint values of a factor of states and sites: the program is evaluated at each of them.
MOST_JOINT_STATES = 2**16
# Sites that meet in a factor from which states are looked for, which takes time; and times as many entries as paths of
# states have that the sums must fill without them.
STATES_WORTH_LOOKING, STATES_GAIN = 4, 2
# Entries of all paths of states, and of the tables of their factors, many of which are the same for all levels: 500
# steps of 90 states and 3 values have 4 million, and take 2.5 ms for value and gradient.
MOST_PATH_ENTRIES = 2**24
# States that are compared with each other, to find those that need not be told apart: 64 take some 0.1 s.
MOST_MERGED_STATES = 64
