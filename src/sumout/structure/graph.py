"""The dependence structure of the sites: two sites are neighbours when some factor depends on both.

In one colour class no two sites are neighbours, so that given the others they are independent and can be updated all at
once. Sites in different components never meet in a factor.
"""

from dataclasses import dataclass

import numpy as np
import rustworkx
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

# A scope larger than this is taken as a clique without listing its edges one by one.
LARGEST_LISTED_CLIQUE = 4_000


@dataclass(frozen=True, eq=False)
class Graph:
    """Neighbours, components and colours of the sites."""

    num_sites: int
    edges: np.ndarray  # (num_edges, 2), each pair once, smaller site first
    num_edges: int
    components: np.ndarray  # (num_sites,) label of each site
    colours: np.ndarray  # (num_sites,)


@dataclass(frozen=True)
class Shape:
    """A kind of component: what it looks like and how large it is."""

    kind: str  # "isolated", "path", "tree", "ring", "clique" or "network"
    size: int


def component_shapes(graph: Graph) -> list[Shape]:
    """The shape of every component, in the order of their labels."""
    sizes = np.bincount(graph.components)
    edges = np.bincount(graph.components[graph.edges[:, 0]], minlength=len(sizes))
    degrees = np.bincount(graph.edges.ravel(), minlength=graph.num_sites)
    largest = np.zeros(len(sizes), np.int64)
    np.maximum.at(largest, graph.components, degrees)
    unlisted = graph.num_edges > len(graph.edges)
    return [
        Shape(_kind(int(n), int(e), int(d), unlisted), int(n)) for n, e, d in zip(sizes, edges, largest, strict=True)
    ]


def _kind(size: int, edges: int, degree: int, unlisted: bool) -> str:
    if size == 1:
        return "isolated"
    if unlisted and size > LARGEST_LISTED_CLIQUE:
        return "network"
    if edges == size - 1:
        return "path" if degree <= 2 else "tree"
    if edges == size * (size - 1) // 2:
        return "clique"
    return "ring" if edges == size and degree == 2 else "network"


def connect(scopes: sp.csr_array) -> Graph:
    """The graph of a matrix of distinct scopes (scopes × sites)."""
    num_scopes, num_sites = int(scopes.shape[0]), int(scopes.shape[1])  # pyright: ignore[reportOptionalSubscript]
    sizes = np.diff(scopes.indptr)
    bipartite = sp.block_array([[None, scopes], [scopes.T, None]]) if num_scopes else sp.csr_array((num_sites,) * 2)
    components = connected_components(bipartite, directed=False)[1][num_scopes:]
    components = np.unique(components, return_inverse=True)[1]
    dense = sizes > LARGEST_LISTED_CLIQUE
    edges = _edges(scopes[np.flatnonzero(~dense)])
    colours = _colour(num_sites, edges)
    num_edges = len(edges)
    if dense.any():
        # Give every site of a large clique a colour of its own, above all others.
        crowded = np.flatnonzero(scopes[np.flatnonzero(dense)].sum(axis=0))
        colours[crowded] = colours.max(initial=0) + 1 + np.arange(len(crowded))
        colours = np.unique(colours, return_inverse=True)[1]
        num_edges = _count_edges(scopes)
    return Graph(num_sites, edges, num_edges, components, colours)


def _edges(scopes: sp.csr_array) -> np.ndarray:
    counts = scopes.astype(np.int64)
    pairs = sp.triu(counts.T @ counts, k=1).tocoo()
    return np.stack([pairs.row, pairs.col], axis=1).astype(np.int64)


def _count_edges(scopes: sp.csr_array) -> int:
    """Number of neighbouring pairs, row by row, without holding them all."""
    by_site = scopes.T.tocsr().astype(np.int32)
    ends = sum(int((by_site[i : i + 256] @ scopes).count_nonzero()) for i in range(0, by_site.shape[0], 256))
    loops = int((np.diff(by_site.indptr) > 0).sum())
    return (ends - loops) // 2


def _colour(num_sites: int, edges: np.ndarray) -> np.ndarray:
    """Two colours for every component that allows it, a greedy colouring for the others."""
    colours = np.zeros(num_sites, np.int64)
    if not len(edges):
        return colours
    # In the double cover each site stands twice; an edge joins opposite copies. A component is two-colourable
    # exactly when its two copies stay apart.
    a, b = edges.T
    cover = sp.coo_array(
        (np.ones(2 * len(edges), bool), (np.concatenate([a, a + num_sites]), np.concatenate([b + num_sites, b]))),
        shape=(2 * num_sites,) * 2,
    )
    labels = connected_components(cover, directed=False)[1]
    first, second = labels[:num_sites], labels[num_sites:]
    bipartite = first != second
    colours[bipartite] = (first > second)[bipartite]
    odd = np.flatnonzero(~bipartite)
    if len(odd):
        place = np.full(num_sites, -1)
        place[odd] = np.arange(len(odd))
        inner = place[edges]
        graph = rustworkx.PyGraph(multigraph=False)
        graph.add_nodes_from(range(len(odd)))
        graph.extend_from_edge_list([tuple(e) for e in inner[(inner >= 0).all(axis=1)].tolist()])
        greedy = rustworkx.graph_greedy_color(graph, strategy=rustworkx.ColoringStrategy.Saturation)
        colours[odd] = [greedy[i] for i in range(len(odd))]
    return colours
